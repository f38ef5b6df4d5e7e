"""Settings of BabyAI."""

from dataclasses import dataclass

from agent_envs.core import SettingsError
from agent_envs.ranges import check_ranges


@dataclass(frozen=True)
class BabyAIConfig:
    """Settings of BabyAI."""

    level: str = "GoToLocal"
    """A level of BabyAI by its name there, BabyAI-NAME-v0."""
    train_tasks: int = 5000
    """Training tasks, which are seeds."""
    held_out_tasks: int = 1000
    """Validation tasks, and the same number of test tasks."""
    max_turns: int = 24
    """Turns of an episode: to run out of them is a failure. The level's own limit does not act."""

    def __post_init__(self) -> None:
        check_ranges(
            self, SettingsError, "babyai: ", train_tasks=(1, 10_000_000), held_out_tasks=(1, 10_000_000), max_turns=1
        )
