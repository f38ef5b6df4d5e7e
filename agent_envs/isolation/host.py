"""``python -m agent_envs.isolation.host``: environments in a process that may be killed at any time.

Invariant: answers are JSON (`answers`), because what the host runs may be hostile, and whoever reads the answer must
not have to trust it. Requests come from the parent only and are pickled.
"""

import faulthandler
import gc
import pickle
import resource
from functools import partial
from typing import Any

from agent_envs.core import PlayableEnv, SettingsError
from agent_envs.isolation.answers import answered, why
from agent_envs.isolation.child import Channel, connect


class Host:
    """Environments by number, and what is asked of them."""

    def __init__(self, make_env: bytes) -> None:
        self._pickled = make_env
        self._make_env: Any = None
        self._envs: dict[int, PlayableEnv] = {}

    def make(self, number: int) -> None:
        if self._make_env is None:
            try:
                self._make_env = pickle.loads(self._pickled)
            except Exception as error:
                raise SettingsError(f"make_env cannot be used in a process of its own: {why(error)}") from error
            self._envs[number] = self._make_env()
            gc.freeze()  # what the first one loaded stays: collections need not look at it again
        else:
            self._envs[number] = self._make_env()

    def reset(self, number: int, seed: int | None, options: dict[str, Any] | None) -> Any:
        env = self._envs[number]
        started = env.reset(seed=seed, options=options)
        return started, env.system_prompt()

    def step(self, number: int, action: str) -> Any:
        return self._envs[number].step(action)

    def fork(self, number: int, twin: int) -> None:
        self._envs[twin] = self._envs[number].fork()

    def close(self, number: int) -> None:
        if (env := self._envs.pop(number, None)) is not None:
            env.close()


def limit_memory(megabytes: int) -> None:
    """Bounds what this process may allocate, in MiB. Files that it maps to read (an index, a library) do not count.

    RLIMIT_AS would count them, and the addresses that C libraries reserve for threads: 335 MiB in a process that plays
    the wiki, which has allocated 104. macOS takes the limit and does not keep it.
    """
    for kind, wanted in ((resource.RLIMIT_DATA, megabytes * 2**20), (resource.RLIMIT_CORE, 0)):
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def serve(channel: Channel) -> None:
    """Answers requests until the parent is gone."""
    make_env, memory_mb, limit = pickle.loads(channel.recv_bytes())
    limit_memory(memory_mb)
    host = Host(make_env)
    while True:
        try:
            serial, method, *arguments = pickle.loads(channel.recv_bytes())
        except EOFError:
            return
        channel.send_bytes(answered(serial, partial(getattr(host, method), *arguments), limit))


if __name__ == "__main__":
    faulthandler.enable()  # a crash in C code says where
    serve(connect())
