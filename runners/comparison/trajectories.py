"""What the episodes of runs tell of their lengths and tasks.

Invariant: read line by line, so that a long run needs no memory; an episode that broke has no length.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median


@dataclass(frozen=True)
class Lengths:
    """Of episodes, in turns or in sampled tokens."""

    mean: float
    low: int
    median: float
    high: int

    def __str__(self) -> str:
        return f"{self.mean:.1f} ({self.low} / {self.median:g} / {self.high})"


@dataclass(frozen=True)
class Trajectories:
    """The episodes of several runs."""

    tasks: tuple[int, ...]
    """Different tasks that each run played."""
    turns: Lengths | None
    """None where no episode ended."""
    tokens: Lengths | None


def read_trajectories(folders: Iterable[Path]) -> Trajectories:
    """Those of these run folders. Raises OSError or ValueError for a missing or damaged record."""
    tasks, turns, tokens = list[int](), list[int](), list[int]()
    for folder in folders:
        mine = set[tuple[str, str]]()
        with (folder / "episodes.jsonl").open(encoding="utf-8") as lines:
            for line in lines:
                episode = json.loads(line)
                mine.add((episode.get("env", ""), episode["task"]))
                if "turns" in episode:
                    turns.append(len(episode["turns"]))
                    tokens.append(sum(len(turn["tokens"]) for turn in episode["turns"]))
        tasks.append(len(mine))
    return Trajectories(tuple(tasks), _lengths(turns), _lengths(tokens))


def _lengths(found: list[int]) -> Lengths | None:
    return Lengths(sum(found) / len(found), min(found), median(found), max(found)) if found else None
