"""Settings of the identity environment."""

from dataclasses import dataclass

from agent_envs.core import SettingsError
from agent_envs.ranges import check_share


@dataclass(frozen=True)
class IdentityConfig:
    """Settings of the identity environment."""

    words: tuple[str, ...] = ("red", "blue", "green", "white", "black", "gold")
    """The vocabulary."""
    length: int = 3
    """Words shown in an episode, one a turn."""
    skill: float = 0.5
    """Skill of the oracle's agent: the chance that it says a word right."""
    max_turns: int = 5
    """Turns after which an unfinished episode is truncated (only invalid actions make it longer than `length`)."""

    def __post_init__(self) -> None:
        if len(set(self.words)) < max(2, len(self.words)) or not all(word.isalnum() for word in self.words):
            raise SettingsError(f"identity: words must be two or more distinct plain words, not {self.words}")
        if self.length < 1 or not 10 <= len(self.words) ** self.length <= 100_000:
            raise SettingsError("identity: len(words) ** length must be from 10 to 100000: change words or length")
        check_share(self, SettingsError, "identity: ", "skill")
        if self.max_turns < self.length:
            raise SettingsError(f"identity: max_turns must be at least length ({self.length}), not {self.max_turns}")
