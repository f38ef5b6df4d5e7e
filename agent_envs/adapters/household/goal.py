"""When an errand is done, and how much of it: ALFWorld's goals of its six kinds of tasks."""

from agent_envs.adapters.household.catalogue import LAMP, STATES
from agent_envs.adapters.household.config import Kind
from agent_envs.adapters.household.house import Errand, House, State


def score(house: House, state: State) -> float:
    """Share of the goal's conditions that hold, of the thing and the place for which most do; 1 where it is done."""
    errand = house.errand
    things = [thing for thing, named in enumerate(house.things) if named.kind == errand.thing]
    if errand.kind == Kind.LIGHT:
        lit = any(state.inside[lamp] == state.at for lamp in state.toggled)
        return ((state.held in things) + lit) / 2
    targets = {place for place, named in enumerate(house.places) if named.kind == errand.place}
    if errand.kind == Kind.TWO:
        return max(min(2, sum(state.inside[thing] == place for thing in things)) for place in targets) / 2
    placed = [state.inside[thing] in targets for thing in things]
    if errand.kind == Kind.PLACE:
        return float(any(placed))
    changed = changed_things(state, errand.kind)
    return max((thing in changed) + there for thing, there in zip(things, placed, strict=True)) / 2


def changed_things(state: State, kind: Kind) -> frozenset[int]:
    """The things that are clean, hot or cool."""
    return {Kind.CLEAN: state.clean, Kind.HEAT: state.hot, Kind.COOL: state.cool}[kind]


def told(errand: Errand) -> str:
    """The errand in words."""
    if errand.kind == Kind.LIGHT:
        return f"look at {_one(errand.thing)} under a {LAMP}"
    what = errand.thing if errand.kind not in STATES else f"{STATES[errand.kind]} {errand.thing}"
    return f"put {f'two {what}' if errand.kind == Kind.TWO else _one(what)} in/on {_one(errand.place)}"


def _one(name: str) -> str:
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
