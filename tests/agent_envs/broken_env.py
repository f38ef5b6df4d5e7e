"""An environment that breaks on demand, in every way that was thought of, while a file exists."""

import ctypes
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from agent_envs import BackendUnavailable, SettingsError
from agent_envs.identity.env import IdentityEnv

FIVE: dict[str, Any] = {
    "four": ("text", 0.0, False, False),
    "none": None,
    "text": "abcde",
    "bytes": (b"text", 0.0, False, False, {}),
    "number": (5, 0.0, False, False, {}),
    "nan": ("text", float("nan"), False, False, {}),
    "infinite": ("text", -float("inf"), False, False, {}),
    "huge": ("text", 10**400, False, False, {}),
    "bool": ("text", True, False, False, {}),
    "worded": ("text", "1.0", False, False, {}),
    "flag": ("text", 0.0, 1, False, {}),
    "flags": ("text", 0.0, False, None, {}),
    "list": ("text", 0.0, False, False, []),
    "set": ("text", 0.0, False, False, {"metrics": {1, 2}}),
    "nan inside": ("text", 0.0, False, False, {"metrics": {"x": float("nan")}}),
    "flood": ("x" * 3_000_000, 0.0, False, False, {}),
    "flooded info": ("", 0.0, False, False, {"x": "é" * 3_000_000}),
}
"""What a step may answer and should not."""


class Unspeakable(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise RuntimeError("no words")


class BrokenEnv(IdentityEnv):
    """Does what the file ``when`` says, as long as it exists: "how@where"."""

    def __init__(self, when: Path) -> None:
        super().__init__()
        self.when = when
        self._perhaps("make")

    def _perhaps(self, where: str) -> Any:
        if not self.when.exists():
            return ...
        how, _, place = self.when.read_text().partition("@")
        return do(how, self.when) if place == where else ...

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        answer = self._perhaps("reset")
        if answer is not ...:
            return answer if answer is None else answer[::4]
        return super().reset(seed=seed, options=options)

    def step(self, action: str) -> Any:
        answer = self._perhaps("step")
        return super().step(action) if answer is ... else answer

    def fork(self) -> Any:
        answer = self._perhaps("fork")
        return super().fork() if answer is ... else answer

    def close(self) -> None:
        self._perhaps("close")


class EchoEnv(IdentityEnv):
    """Says what it is told, also in its info and its system prompt."""

    said = ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.said = (options or {}).get("say", "")
        return self.said, {"said": self.said}

    def step(self, action: str) -> Any:
        return action, 0.1 + 0.2, False, True, {action: [action, None, 1e-320, 2**60]}

    def system_prompt(self) -> str:
        return self.said


def open_numbers() -> list[int]:
    """The open files of this process above stderr; the connection keeps the number that it had in the parent."""
    return sorted(number for number in map(int, os.listdir("/dev/fd")) if number > 2)


def do(how: str, when: Path) -> Any:
    """One way to break."""
    match how.split(":"):
        case ["raise"]:
            raise ValueError("no\nway \ud800\x1b[31m")
        case ["unspeakable"]:
            raise Unspeakable
        case ["unavailable"]:
            raise BackendUnavailable("the disk is gone")
        case ["settings"]:
            raise SettingsError("broken: use another word")
        case ["hang"]:
            time.sleep(1000)
        case ["slow", seconds]:
            time.sleep(float(seconds))
        case ["spin"]:  # inside C, and nothing else of this interpreter runs meanwhile
            pids = [os.getpid(), subprocess.Popen(["sleep", "1000"]).pid]
            when.with_suffix(".part").write_text(" ".join(map(str, pids)))
            when.with_suffix(".part").rename(when.with_suffix(".pids"))
            re.match(r"(a+)+$", "a" * 60 + "b")
        case ["exit"]:
            print("last words")
            sys.exit(3)
        case ["_exit"]:
            os._exit(4)
        case ["later"]:
            threading.Timer(0.05, os._exit, [5]).start()
        case ["kill"]:
            os.kill(os.getpid(), signal.SIGKILL)
        case ["segfault"]:
            ctypes.string_at(0)
        case ["memory"]:
            hoard = []
            while True:
                hoard.append(bytearray(1 << 24))
        case ["print"]:
            while True:
                print("x" * 100_000, flush=True)
        case ["send", data]:  # what it wants to whoever listens, in place of the host
            for number in open_numbers():
                try:
                    if stat.S_ISSOCK(os.fstat(number).st_mode):
                        os.write(number, bytes.fromhex(data))
                except OSError:
                    continue
        case ["send", data, "hang"]:
            do(f"send:{data}", when)
            time.sleep(1000)
        case ["deaf"]:
            os.closerange(3, open_numbers()[-1] + 1)
            time.sleep(1000)
        case ["twin"]:  # two processes that answer
            os.fork()
        case [name] if name in FIVE:
            return FIVE[name]
        case _:
            raise AssertionError(how)
    return ...
