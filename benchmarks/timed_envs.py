"""Environments of `scale_sim` that write down how long each of their turns took.

Runs reach them through the entry points of a package that `installed` writes: a folder to be put into PYTHONPATH.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from agent_envs.code.env import CodeEnv
from agent_envs.core import SettingsError, TextEnv
from agent_envs.identity.config import IdentityConfig
from agent_envs.identity.env import IdentityEnv
from agent_envs.ranges import check_above_0

Z99 = 2.3263478740408408
"""The standard normal's 99th percentile."""
LOG = "TURNWISE_TIMED_LOG"
"""The variable that names the folder for the seconds of every turn; nothing is written without it. It is no setting of
an environment, for then every run would make a tiny model of its own."""
PACKAGE = "turnwise_timed-0"
NAMES = {"waiting": "WaitingEnv", "timed_code": "TimedCodeEnv"}


def sigma(ratio: float) -> float:
    """The lognormal's spread at which its 99th percentile is ``ratio`` times its median."""
    return log(ratio) / Z99


@dataclass(frozen=True)
class WaitingConfig(IdentityConfig):
    """Settings of the waiting environment."""

    median: float = 0.06
    """Median of a turn in seconds."""
    ratio: float = 50.0
    """99th percentile of a turn over its median."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_above_0(self, "median")
        if not 1 <= self.ratio <= 1000:
            raise SettingsError(f"waiting: ratio must lie in 1..1000, not {self.ratio}")


class Timed(TextEnv):
    """Writes the task and the seconds of every turn into a file of its process."""

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        started = time.perf_counter()
        self._wait()
        answer = super().step(action)
        seconds = time.perf_counter() - started
        if folder := os.environ.get(LOG):
            with (Path(folder) / f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps([self.task.id, seconds]) + "\n")
        return answer

    def _wait(self) -> None:
        """What comes before the turn is played."""


class WaitingEnv(Timed, IdentityEnv):
    """Repeat the word that is shown, and wait: a turn lasts a lognormal time, and no processor works meanwhile.

    The times of an episode are drawn by the environment's own seed, so they are those of its task, whoever plays it.
    """

    name: ClassVar[str] = "waiting"
    Config: ClassVar[type[Any]] = WaitingConfig
    config: WaitingConfig

    def offline(self) -> TextEnv:
        """Demonstrations take no time."""
        return IdentityEnv(self.config)

    def _wait(self) -> None:
        time.sleep(float(self.np_random.lognormal(log(self.config.median), sigma(self.config.ratio))))


class TimedCodeEnv(Timed, CodeEnv):
    """Repair small programs in a sandbox; every turn is timed."""

    name: ClassVar[str] = "timed_code"

    def offline(self) -> TextEnv:
        return CodeEnv(self.config)


def installed(folder: Path) -> Path:
    """Makes ``folder`` one from which Python reads the entry points of these environments; returns it."""
    info = folder / f"{PACKAGE}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: turnwise-timed\nVersion: 0\n", "utf-8")
    points = "".join(f"{name} = benchmarks.timed_envs:{made}\n" for name, made in NAMES.items())
    (info / "entry_points.txt").write_text(f"[turnwise.envs]\n{points}", "utf-8")
    return folder.resolve()


def logged(folder: Path) -> Mapping[str, Sequence[float]]:
    """Task → the seconds of its turns, by the files of a folder.

    A task that was played several times has the turns of all its episodes.
    """
    turns: dict[str, list[float]] = {}
    for task, seconds in _lines(folder):
        turns.setdefault(task, []).append(seconds)
    return turns


def _lines(folder: Path) -> Iterator[tuple[str, float]]:
    for file in sorted(folder.glob("*.jsonl")):
        yield from map(json.loads, file.read_text("utf-8").splitlines())


def quantiles(seconds: Sequence[float]) -> Mapping[str, float]:
    """Median, 99th percentile, largest and mean, in seconds."""
    values = np.asarray(seconds, float)
    return {
        "median": float(np.median(values)), "p99": float(np.quantile(values, 0.99)), "max": float(values.max()),
        "mean": float(values.mean()), "turns": len(values),
    }  # fmt: skip
