"""The expert of the household: the next command of a shortest way that is known.

Invariant: it gets there from every state, for nothing that the rules allow is lost for good.
"""

from collections.abc import Iterator, Sequence
from itertools import permutations

from agent_envs.adapters.household.catalogue import FITS, LAMP
from agent_envs.adapters.household.config import Kind, Knows
from agent_envs.adapters.household.house import House, State
from agent_envs.adapters.household.way import Way


def advice(house: House, state: State, knows: Knows) -> str:
    """The next command of a shortest way; one that looks further where too little is known for a way."""
    known = frozenset(range(len(house.places))) if knows == Knows.ALL else state.seen
    found = min(_ways(house, state, known), key=lambda way: len(way.commands), default=None)
    return found.commands[0] if found is not None and found.commands else _search(house, state)


def _ways(house: House, state: State, known: frozenset[int]) -> Iterator[Way]:
    """Ways to the goal by things whose places are known; as far as the first where only that one is."""
    errand = house.errand
    things = _known(house, state, errand.thing, known)
    if errand.kind == Kind.LIGHT:
        lamps = _known(house, state, LAMP, known)
        yield from (way.use(lamp) for lamp in lamps for way in _fetched(house, state, things))
        if not lamps and state.held not in things:
            yield from _fetched(house, state, things)
        return
    targets = [at for at, place in enumerate(house.places) if place.kind == errand.place]
    if errand.kind == Kind.TWO:
        # A single one that is where it belongs stays there: at another place it would be no nearer to the goal.
        if len(things) > 1 or not any(state.inside[thing] in targets for thing in things):
            yield from (way for place in targets for way in _pairs(house, state, things, place))
        return
    for place in targets:
        for way in _fetched(house, state, things):
            yield (way if errand.kind == Kind.PLACE else way.change(errand.kind)).bring(place)


def _pairs(house: House, state: State, things: list[int], place: int) -> Iterator[Way]:
    """Ways that bring to a place what is missing of two, as far as it is known."""
    missing = [thing for thing in things if state.inside[thing] != place]
    wanted = min(2 - (len(things) - len(missing)), len(missing))
    for chosen in permutations(missing, wanted):
        for way in _fetched(house, state, chosen[:1]):
            way.bring(place)
            for thing in chosen[1:]:
                way.fetch(thing).bring(place)
            yield way


def _fetched(house: House, state: State, things: Sequence[int]) -> Iterator[Way]:
    """Ways that take one of these things, each way that there is to put down what is carried instead."""
    for thing in things:
        drops: Sequence[int | None] = [None]
        if state.held is not None and state.held != thing:
            drops = [at for at in range(len(house.places)) if house.fits(state.held, at)]
        yield from (Way(house, state).fetch(thing, drop) for drop in drops)


def _known(house: House, state: State, kind: str, known: frozenset[int]) -> list[int]:
    """The things of a kind that are carried, or lie where it is known what lies there."""
    kinds = (at for at, named in enumerate(house.things) if named.kind == kind)
    return [thing for thing in kinds if thing == state.held or state.inside[thing] in known]


def _search(house: House, state: State) -> str:
    """To the next place that was not looked into: where the agent is, else one where what is sought can be."""
    sought = {house.errand.thing, LAMP if house.errand.kind == Kind.LIGHT else house.errand.thing}

    def promise(place: int) -> tuple[bool, bool]:
        return place != state.at, sought.isdisjoint(FITS[house.places[place].kind])

    places = range(len(house.places))
    unseen = sorted((place for place in places if place not in state.seen), key=promise)
    left = unseen or [place for place in places if place != state.at]
    return Way(house, state).reach(left[0]).commands[0]
