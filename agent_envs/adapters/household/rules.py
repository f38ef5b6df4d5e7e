"""ALFWorld's rules: what can be done where an episode stands, and what it leads to.

Invariant: `possible` has a command for every action of ALFWorld's domain (alfred.pddl of the package `alfworld` 0.4.2)
that is applicable, and no other, where each place stands apart; the state behind it holds the facts after that action.
`checked`, which no rule reads, is left out. tests/agent_envs/test_household_rules.py plays both side by side.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from agent_envs.adapters.household.catalogue import APPLIANCES, CHANGES, KNIVES, SLICEABLE
from agent_envs.adapters.household.config import Kind
from agent_envs.adapters.household.house import House, State, accessible

Steps: TypeAlias = Iterator[tuple[str, State]]


def possible(house: House, state: State, *, idle: bool = False) -> Mapping[str, State]:
    """Command → the state it leads to, for all that can be done now; with `idle` also for what changes nothing."""
    actions = (_go, _open, _close, _take, _put, _clean, _heat, _cool, _use, _slice, *([_idle] if idle else []))
    return {command: after for action in actions for command, after in action(house, state)}


def _go(house: House, state: State) -> Steps:
    """GotoLocation. Where the agent is already it would change nothing."""
    for place, named in enumerate(house.places):
        if place != state.at:
            seen = state.seen | {place} if accessible(house, state, place) else state.seen
            yield f"go to {named.name}", replace(state, at=place, seen=seen)


def _open(house: House, state: State) -> Steps:
    """OpenObject."""
    at = state.at
    if at is not None and not accessible(house, state, at):
        yield f"open {house.places[at].name}", replace(state, opened=state.opened | {at}, seen=state.seen | {at})


def _close(house: House, state: State) -> Steps:
    """CloseObject."""
    if state.at in state.opened:
        assert state.at is not None
        yield f"close {house.places[state.at].name}", replace(state, opened=state.opened - {state.at})


def _take(house: House, state: State) -> Steps:
    """PickupObject: with empty hands. A lamp is not picked up."""
    at = state.at
    if at is None or state.held is not None or not accessible(house, state, at):
        return
    for thing in state.there(at):
        if not house.lamp(thing):
            yield (
                f"take {house.things[thing].name} from {house.places[at].name}",
                replace(state, held=thing, inside=state.moved(thing, None)),
            )


def _put(house: House, state: State) -> Steps:
    """PutObject: where things of this kind fit. No place is ever full."""
    at, thing = state.at, state.held
    if at is not None and thing is not None and accessible(house, state, at) and house.fits(thing, at):
        yield (
            f"move {house.things[thing].name} to {house.places[at].name}",
            replace(state, held=None, inside=state.moved(thing, at)),
        )


def _clean(house: House, state: State) -> Steps:
    """CleanObject."""
    for command, thing in _changing(house, state, Kind.CLEAN):
        yield command, replace(state, clean=state.clean | {thing})


def _heat(house: House, state: State) -> Steps:
    """HeatObject: nobody needs to open the microwave for it. What is hot is no longer cool."""
    for command, thing in _changing(house, state, Kind.HEAT):
        yield command, replace(state, hot=state.hot | {thing}, cool=state.cool - {thing})


def _cool(house: House, state: State) -> Steps:
    """CoolObject: nobody needs to open the fridge for it. What is cool is no longer hot."""
    for command, thing in _changing(house, state, Kind.COOL):
        yield command, replace(state, cool=state.cool | {thing}, hot=state.hot - {thing})


def _changing(house: House, state: State, how: Kind) -> Iterator[tuple[str, int]]:
    """(command, thing) for what is carried, where the agent is at the appliance for it."""
    at, thing = state.at, state.held
    if at is None or thing is None or house.places[at].kind != APPLIANCES[how]:
        return
    if house.things[thing].kind in CHANGES[how]:
        yield f"{how} {house.things[thing].name} with {house.places[at].name}", thing


def _use(house: House, state: State) -> Steps:
    """ToggleObject: also where the hands are full."""
    if state.at is not None:
        for thing in state.there(state.at):
            if house.lamp(thing):
                toggled = state.toggled | {thing}
                yield f"use {house.things[thing].name}", replace(state, on=state.on ^ {thing}, toggled=toggled)


def _slice(house: House, state: State) -> Steps:
    """SliceObject: with a knife in the hand. As in ALFWorld a closed place does not hinder, and it can be repeated."""
    if state.at is None or state.held is None or house.things[state.held].kind not in KNIVES:
        return
    for thing in state.there(state.at):
        named = house.things[thing]
        if named.kind in SLICEABLE:
            command = f"slice {named.name} with {house.things[state.held].name}"
            yield command, replace(state, sliced=state.sliced | {thing})


def _idle(house: House, state: State) -> Steps:
    """look, inventory, help, examineReceptacle and examineObject.

    The file also wants to let things be examined that lie in sight. A comma there, after the type `location`, keeps
    ALFWorld's engine from it, and the engine is what is followed here.
    """
    names = ["look", "inventory", "help"]
    if state.at is not None:
        names.append(f"examine {house.places[state.at].name}")
    if state.held is not None:
        names.append(f"examine {house.things[state.held].name}")
    for name in names:
        yield name, state
