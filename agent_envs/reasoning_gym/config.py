"""Settings of reasoning-gym's tasks."""

from dataclasses import dataclass

from agent_envs.core import SettingsError
from agent_envs.ranges import check_ranges


@dataclass(frozen=True)
class ReasoningGymConfig:
    """Settings of reasoning-gym's tasks."""

    dataset: str = "chain_sum"
    """A data set of reasoning-gym, by its name there."""
    seed: int = 0
    """Seed of the tasks."""
    train_tasks: int = 1000
    """Training tasks; those of small data sets repeat."""
    held_out_tasks: int = 200
    """Validation tasks, and the same number of test tasks."""
    turns: int = 6
    """Turns for the whole task."""
    max_turns: int = 12
    """Largest value that `turns` may have."""
    score_seconds: int = 2
    """Processor time for scoring one answer."""

    def __post_init__(self) -> None:
        tasks = dict.fromkeys(("train_tasks", "held_out_tasks"), (1, 10_000_000))
        check_ranges(self, SettingsError, "reasoning_gym: ", **tasks, seed=0, turns=1, score_seconds=(1, 600))
        if self.max_turns < self.turns:
            raise SettingsError(f"reasoning_gym: max_turns must be at least turns ({self.turns}), not {self.max_turns}")
