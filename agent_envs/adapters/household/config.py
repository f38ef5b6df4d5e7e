"""Settings of the household."""

from dataclasses import dataclass
from enum import StrEnum

from agent_envs.core import SettingsError
from agent_envs.ranges import check_ranges


class Kind(StrEnum):
    """A kind of tasks."""

    PLACE = "place"
    """Put a thing somewhere."""
    TWO = "two"
    """Put two things of a kind at one place."""
    LIGHT = "light"
    """Look at a thing under a lamp: hold it where a lamp was switched on."""
    CLEAN = "clean"
    """Clean a thing and put it somewhere."""
    HEAT = "heat"
    """Heat a thing and put it somewhere."""
    COOL = "cool"
    """Cool a thing and put it somewhere."""


class Knows(StrEnum):
    """What the expert knows."""

    ALL = "all"
    """Where everything lies: it takes a shortest way."""
    SEEN = "seen"
    """What was seen so far: it searches, the first place that was not looked into first."""


@dataclass(frozen=True)
class HouseholdConfig:
    """Settings of the household."""

    kinds: tuple[Kind, ...] = tuple(Kind)
    """Kinds of tasks, drawn equally often: place, two, light, clean, heat, cool."""
    places: int = 6
    """Places where things can be: fridges, drawers, shelves."""
    things: int = 8
    """Things in the house, a lamp included where there is one."""
    expert: Knows = Knows.SEEN
    """What the expert knows: where all things are, or what was seen so far, so that it searches."""
    idle: bool = False
    """Also take the commands that change nothing (look, inventory, examine, help); what they tell is in the view."""
    train_tasks: int = 5000
    """Training tasks, which are seeds."""
    held_out_tasks: int = 1000
    """Validation tasks, and the same number of test tasks."""
    max_turns: int = 30
    """Turns of an episode: to run out of them is a failure."""

    def __post_init__(self) -> None:
        known = ", ".join(Kind)
        if not self.kinds or len(set(self.kinds)) < len(self.kinds) or not set(self.kinds) <= set(Kind):
            raise SettingsError(
                f"household: kinds must be distinct ones of {known}, not {' '.join(self.kinds) or 'none'}"
            )
        tasks = dict.fromkeys(("train_tasks", "held_out_tasks"), (1, 10_000_000))
        sizes = {"places": (4, 20), "things": (3, 30)}
        check_ranges(self, SettingsError, "household: ", **sizes, **tasks, max_turns=1)
