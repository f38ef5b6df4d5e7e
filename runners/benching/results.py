"""What an agent did on a suite, in plain numbers; the part that is the same twice, and its digest.

Invariant: nothing in `Row.reproducible` depends on the clock, the machine or the place of a model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from agents.tree.episode import Episode, Fault, Served
from runners.benching.fingerprints import LENGTH
from runners.command_line.plain import dump_json, plain
from runners.evaluation.scripted import ScriptedEpisode
from runners.statistics.intervals import Interval, bootstrap, percentile

DRAWS = 2000
COSTS = ("turns", "tokens", "prompt_tokens")


@dataclass(frozen=True)
class TaskResult:
    """What became of one task."""

    task: str
    success: bool | None
    """None where the environment broke: the task is in no mean."""
    reward: float = 0.0
    turns: int = 0
    tokens: int = 0
    """Tokens that were generated."""
    prompt_tokens: int = 0
    """Tokens that a server read, over all its requests."""
    transcript: str = ""
    """Hash of every text that was read and written."""

    @classmethod
    def of(cls, outcome: Episode | Fault) -> TaskResult:
        """That of an episode of a model."""
        if isinstance(outcome, Fault):
            return cls(outcome.job.task.id, None)
        read = outcome.prompt_tokens if isinstance(outcome, Served) else 0
        return cls(
            outcome.job.task.id, bool(outcome.success), outcome.reward, len(outcome.turns), outcome.sampled_tokens,
            read, transcript(outcome.prompt, outcome.texts),
        )  # fmt: skip

    @classmethod
    def of_scripted(cls, task: str, episode: ScriptedEpisode) -> TaskResult:
        """That of an episode without a model."""
        said = transcript(episode.prompt, episode.texts)
        return cls(task, episode.success, episode.reward, len(episode.texts), transcript=said)


def transcript(prompt: tuple[str, str], texts: Sequence[tuple[str, str]]) -> str:
    """Hash of the texts of an episode."""
    return sha256(repr((prompt, list(texts))).encode("utf-8", "surrogatepass")).hexdigest()[:LENGTH]


@dataclass(frozen=True)
class EntryResult:
    """What became of an entry's tasks."""

    name: str
    fingerprint: str
    results: tuple[TaskResult, ...]
    seconds: float
    """On this machine, in this process."""

    def of(self, figure: str) -> list[float]:
        """A figure of each task; NaN where the environment broke."""
        return [math.nan if one.success is None else float(getattr(one, figure)) for one in self.results]

    @property
    def broken(self) -> int:
        """Tasks whose environment broke."""
        return sum(one.success is None for one in self.results)

    def mean(self, figure: str) -> Interval:
        """Mean over the tasks. Raises ValueError where every environment broke."""
        return bootstrap(self.of(figure))

    def total(self, figure: str) -> int:
        """Sum over the tasks."""
        return sum(int(getattr(one, figure)) for one in self.results)


def mean_over_entries(values: Sequence[Sequence[float]], *, seed: int = 0) -> Interval:
    """The mean of the entries' means, each of the same weight, with its 95 % interval: tasks are resampled within their
    entry. NaN is left out. Raises ValueError for an entry without a number."""
    rng, means, draws = np.random.default_rng(seed), [], []
    for entry in values:
        x_N = np.asarray(entry, dtype=np.float64)
        x_N = x_N[~np.isnan(x_N)]
        if not x_N.size:
            raise ValueError("a mean over entries needs a value of each")
        means.append(x_N.mean())
        draws.append(x_N[rng.integers(0, x_N.size, size=(DRAWS, x_N.size))].mean(axis=1))
    return percentile(float(np.mean(means)), [float(x) for x in np.mean(draws, axis=0)])


@dataclass(frozen=True)
class Row:
    """An agent's row of a suite."""

    suite: str
    content: str
    """Hash of the suite."""
    whole: bool
    """Whether all tasks of the suite were played."""
    agent: Mapping[str, Any]
    """What played, without where it lies."""
    seed: int
    settings: Mapping[str, Any]
    """How a model played: lengths, decoding."""
    entries: tuple[EntryResult, ...]

    @property
    def success(self) -> Interval:
        """Mean over entries."""
        return mean_over_entries([entry.of("success") for entry in self.entries])

    def reproducible(self) -> dict[str, Any]:
        """All that two people can compare: what was played, and what became of every task."""
        names = ("suite", "content", "whole", "agent", "seed", "settings")
        entries = [
            {"name": entry.name, "fingerprint": entry.fingerprint, "tasks": entry.results} for entry in self.entries
        ]
        result: dict[str, Any] = plain({**{name: getattr(self, name) for name in names}, "entries": entries})
        return result

    def figures(self) -> dict[str, Any]:
        """Means with their intervals, and costs. They follow from the results, so no digest needs them."""
        entries = {
            entry.name: {name: entry.mean(name) for name in ("success", "reward", "turns", "tokens")}
            | {"tasks": len(entry.results), "broken": entry.broken}
            for entry in self.entries
        }
        costs = {name: sum(entry.total(name) for entry in self.entries) for name in COSTS}
        return {"success": self.success, "entries": entries, "costs": costs}

    @property
    def digest(self) -> str:
        """Hash of the reproducible part."""
        return sha256(dump_json(self.reproducible(), indent=None).encode()).hexdigest()
