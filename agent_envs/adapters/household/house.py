"""A house, and where an episode in it stands. Both are values: nothing changes them, so that forks share them."""

from dataclasses import dataclass
from functools import cached_property

from agent_envs.adapters.household.catalogue import FITS, LAMP, OPENABLE
from agent_envs.adapters.household.config import Kind


@dataclass(frozen=True)
class Named:
    """A place or a thing."""

    kind: str
    number: int
    """Counted from 1 among those of its kind."""

    @cached_property
    def name(self) -> str:
        return f"{self.kind} {self.number}"


@dataclass(frozen=True)
class Errand:
    """What is to be done."""

    kind: Kind
    thing: str
    """Kind of the thing."""
    place: str = ""
    """Kind of the place where it belongs; empty where it is looked at under a lamp."""


@dataclass(frozen=True)
class House:
    """What never changes in an episode."""

    places: tuple[Named, ...]
    """By name. Each stands apart: whoever goes to one is at no other."""
    things: tuple[Named, ...]
    inside: tuple[int, ...]
    """Thing → place, both by number in these lists, at the beginning."""
    errand: Errand

    def openable(self, place: int) -> bool:
        return self.places[place].kind in OPENABLE

    def fits(self, thing: int, place: int) -> bool:
        """Whether a thing can be put somewhere."""
        return self.things[thing].kind in FITS[self.places[place].kind]

    def lamp(self, thing: int) -> bool:
        return self.things[thing].kind == LAMP


@dataclass(frozen=True)
class State:
    """Where an episode stands. Numbers are those of the house's lists."""

    inside: tuple[int | None, ...]
    """Thing → place; None for the one that is carried."""
    at: int | None = None
    """The place where the agent is; None in the middle of the room, where it begins."""
    held: int | None = None
    """The thing that is carried."""
    opened: frozenset[int] = frozenset()
    """Places that are open."""
    clean: frozenset[int] = frozenset()
    hot: frozenset[int] = frozenset()
    cool: frozenset[int] = frozenset()
    sliced: frozenset[int] = frozenset()
    on: frozenset[int] = frozenset()
    """Things that are switched on."""
    toggled: frozenset[int] = frozenset()
    """Things that were ever switched. ALFWorld's goal asks for these, so that switching off takes nothing back."""
    seen: frozenset[int] = frozenset()
    """Places whose things were seen. No rule reads it; the expert that searches does."""

    def there(self, place: int) -> tuple[int, ...]:
        """The things at a place."""
        return tuple(thing for thing, where in enumerate(self.inside) if where == place)

    def moved(self, thing: int, place: int | None) -> tuple[int | None, ...]:
        """`inside` after a thing was put somewhere, or taken."""
        return (*self.inside[:thing], place, *self.inside[thing + 1 :])


def accessible(house: House, state: State, place: int) -> bool:
    """Whether what is at a place can be seen and taken: it is open, where it can be."""
    return place in state.opened or not house.openable(place)
