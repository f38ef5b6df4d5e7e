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
    """Tasks to learn from; those of small data sets repeat."""
    held_out_tasks: int = 200
    """Tasks to validate, and as many to test."""
    turns: int = 6
    """Turns within which the answer must be given."""
    max_turns: int = 12
    """No episode has more turns: more `turns` are refused."""
    score_seconds: int = 2
    """Computing time for the scoring of one answer."""

    def __post_init__(self) -> None:
        bounds = {"seed": 0, "train_tasks": 1, "held_out_tasks": 1, "turns": 1, "score_seconds": 1}
        check_ranges(self, SettingsError, "reasoning_gym: ", **bounds)
        if self.max_turns < self.turns:
            raise SettingsError(f"reasoning_gym: max_turns must be at least turns ({self.turns}), not {self.max_turns}")
