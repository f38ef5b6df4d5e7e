"""``python -m agent_envs.isolation.preparing``: builds what environments need, while their user does something else.

Nobody waits for it, and what goes wrong in it is told where the environments are prepared for use. What it builds must
be of use to others: a cache that is built once (`agent_envs.cache`), for which they wait. What it had only begun goes
with it.
"""

import pickle
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from agent_envs.core import TextEnv
from agent_envs.isolation.child import Child, connect

GRACE = 2.0
"""Seconds in which it may clear away what it had begun."""


@contextmanager
def preparing(makes: Sequence[Callable[[], TextEnv]]) -> Iterator[None]:
    """Within, a process of its own prepares the environments that these make, one after the other."""
    child: Child | None = None
    with suppress(Exception):  # one that cannot be pickled, or no process left
        wanted = pickle.dumps(tuple(makes))
        child = Child("agent_envs.isolation.preparing")
        child.send_bytes(wanted)
    try:
        yield
    finally:
        if child is not None:
            child.stop(GRACE)


def prepare(makes: Sequence[Callable[[], TextEnv]]) -> None:
    """Prepares them; who cannot be prepared is left out."""
    for make in makes:
        with suppress(Exception):
            env = make()
            env.prepare()
            env.close()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    prepare(pickle.loads(connect().recv_bytes()))
