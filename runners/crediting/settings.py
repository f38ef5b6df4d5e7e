"""The settings of ``turnwise credit``. Imports no torch."""

from dataclasses import dataclass
from pathlib import Path

from agent_envs.core import SPLITS
from agent_envs.ranges import check_name, check_ranges


@dataclass(frozen=True)
class Credit:
    """Compare algorithms' credit with the environment's own knowledge of progress."""

    model: Path = Path()
    """Run folder whose policies play, before and after training."""
    algos: tuple[str, ...] = ()
    """Algorithms to measure with the critic of --model; by default the one it was trained with."""
    runs: tuple[Path, ...] = ()
    """Run folders to measure with their own algorithm, settings and critic."""
    episodes: int = 500
    """Episodes of each policy."""
    group: int = 8
    """Episodes per task, for algorithms that compare them; the others get the same episodes."""
    continuations: int = 0
    """0: compare with the environment's oracle. Otherwise with the policy's own values: the mean return of this many
    episodes that it plays on from every state, in any environment."""
    split: str = "test"
    """Split of the tasks: train, valid or test."""
    seed: int = 0
    """Seed of the sampling."""
    out: Path | None = None
    """Folder for the figures (credit.json, credit.csv) and the episodes (credit.jsonl, credit.html)."""
    slots: int = 128
    """Episodes played at once."""
    device: str = "auto"
    """Device of the model: auto, cpu, cuda, …"""
    threads: int = 1
    """Threads of torch in this process."""

    def __post_init__(self) -> None:
        check_ranges(
            self, episodes=1, continuations=0, group=1, slots=(1, 65_536), threads=(1, 1024), seed=(0, 2**63 - 1)
        )
        check_name(self, "split", SPLITS)
        if self.continuations == 1:
            raise ValueError("continuations must be 2 or more, which have a standard error, or 0")
        if self.episodes < self.group:
            raise ValueError(f"episodes ({self.episodes}) must be at least one group of {self.group}")
