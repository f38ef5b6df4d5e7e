"""A way through a house, command by command."""

from dataclasses import dataclass, field, replace
from typing import Self

from agent_envs.adapters.household.catalogue import APPLIANCES
from agent_envs.adapters.household.config import Kind
from agent_envs.adapters.household.goal import changed_things
from agent_envs.adapters.household.house import House, State, accessible


@dataclass
class Way:
    """Commands, and where they lead. Each method adds what is missing, so that it adds nothing where all is done."""

    house: House
    state: State
    commands: list[str] = field(default_factory=list)

    def go(self, place: int) -> Self:
        if self.state.at != place:
            return self._did(f"go to {self.house.places[place].name}", at=place)
        return self

    def reach(self, place: int) -> Self:
        """Goes there and opens it."""
        self.go(place)
        if accessible(self.house, self.state, place):
            return self
        return self._did(f"open {self.house.places[place].name}", opened=self.state.opened | {place})

    def fetch(self, thing: int, drop: int | None = None) -> Self:
        """Takes a thing; what is carried before is put down at ``drop``."""
        if self.state.held == thing:
            return self
        if self.state.held is not None:
            assert drop is not None
            self.bring(drop)
        place = self.state.inside[thing]
        assert place is not None
        self.reach(place)
        command = f"take {self.house.things[thing].name} from {self.house.places[place].name}"
        return self._did(command, held=thing, inside=self.state.moved(thing, None))

    def bring(self, place: int) -> Self:
        """Puts what is carried down at a place."""
        thing = self.state.held
        assert thing is not None
        self.reach(place)
        command = f"move {self.house.things[thing].name} to {self.house.places[place].name}"
        return self._did(command, held=None, inside=self.state.moved(thing, place))

    def change(self, kind: Kind) -> Self:
        """Cleans, heats or cools what is carried, where it is not yet."""
        thing = self.state.held
        assert thing is not None
        if thing in changed_things(self.state, kind):
            return self
        place = self._appliance(kind)
        self.go(place)
        self.commands.append(f"{kind} {self.house.things[thing].name} with {self.house.places[place].name}")
        return self

    def use(self, lamp: int) -> Self:
        """Goes to a lamp and switches it, where it never was."""
        place = self.state.inside[lamp]
        assert place is not None
        self.go(place)
        if lamp not in self.state.toggled:
            self.commands.append(f"use {self.house.things[lamp].name}")
        return self

    def _appliance(self, kind: Kind) -> int:
        """The nearest one: where the agent is, or the first."""
        found = [at for at, place in enumerate(self.house.places) if place.kind == APPLIANCES[kind]]
        return self.state.at if self.state.at in found else found[0]

    def _did(self, command: str, **changed: object) -> Self:
        self.commands.append(command)
        self.state = replace(self.state, **changed)  # type: ignore[arg-type]
        return self
