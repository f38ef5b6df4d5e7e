"""Settings of the corridor."""

from dataclasses import dataclass
from itertools import product

from agent_envs.core import SettingsError
from agent_envs.ranges import check_ranges, check_share

WORDS: tuple[str, ...] = tuple("".join(parts) for parts in product("bdfgklmnprst", "aeiou", ("lm", "nd", "rk", "st")))
"""What signs say: 240 short words that mean nothing."""


@dataclass(frozen=True)
class CorridorConfig:
    """Settings of the corridor."""

    doors: int = 12
    """Doors from start to end."""
    pulls: int = 26
    """Pulls within which the end must be reached."""
    max_turns: int = 40
    """Turns after which an episode is truncated; only turns without a pull make it longer than `pulls`."""
    signs: int = 96
    """Number of different signs. The more there are, the less often each occurs, and the more there is to learn."""
    handles: tuple[str, ...] = ("red", "blue", "green", "white")
    """Names of the handles at every door."""
    blank: float = 0.3
    """Share of the doors without a sign."""
    world: int = 0
    """Seed that decides which handle each sign belongs to."""
    skill: float = 0.6
    """Skill of the oracle's agent: the chance that it pulls the right handle at a signed door."""
    train_tasks: int = 20000
    """Training corridors; validation and test have 1000 others each."""

    def __post_init__(self) -> None:
        if len(set(self.handles)) < max(2, len(self.handles)) or not all(h.isalpha() for h in self.handles):
            raise SettingsError(f"corridor: handles must be two or more distinct plain words, not {self.handles}")
        if capital := [h for h in self.handles if h != h.casefold()]:
            raise SettingsError(f"corridor: handles are read in small letters, so write {capital[0]!r} in them")
        if not 1 <= self.doors <= self.pulls <= self.max_turns:
            raise SettingsError(
                "corridor: doors, pulls and max_turns must be at least 1 and none less than the one before, "
                f"not {self.doors}, {self.pulls} and {self.max_turns}"
            )
        if not len(self.handles) <= self.signs <= len(WORDS):
            raise SettingsError(f"corridor: signs must lie between the number of handles and {len(WORDS)}")
        if self.signs**self.doors < 1000:
            raise SettingsError("corridor: signs ** doors must be at least 1000: raise signs or doors")
        if not 0 <= self.blank < 1:
            raise SettingsError(f"corridor: blank must be from 0 to below 1, not {self.blank}")
        check_share(self, SettingsError, "corridor: ", "skill")
        check_ranges(self, SettingsError, "corridor: ", train_tasks=(1, 10_000_000))
