"""Makes a house and an errand in it from a seed. No generator but the seed's own is used."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np

from agent_envs.adapters.household.catalogue import APPLIANCES, CHANGES, FITS, LAMP, ROOMS
from agent_envs.adapters.household.config import Kind
from agent_envs.adapters.household.house import Errand, House, Named

_KEPT = 256
"""Houses that are kept: episodes of one task, forks and replays share theirs."""
T = TypeVar("T")


class Plot(NamedTuple):
    """What an errand needs."""

    room: str
    thing: str
    place: str
    """Where the thing belongs; empty under a lamp."""
    source: str
    """A kind of places where it can be before."""
    lamp: str = ""
    """Where the lamp stands; empty without one."""


@lru_cache(_KEPT)
def generated(kinds: Sequence[Kind], places: int, things: int, seed: int) -> House:
    """The house of a seed, with an errand of one of these kinds; the same in every process."""
    rng = np.random.default_rng(seed)
    kind = _picked(kinds, rng)
    plot = _plot(kind, rng)
    most, stock = ROOMS[plot.room]
    needed = {one: None for one in (plot.place, plot.source, plot.lamp, APPLIANCES.get(kind, "")) if one}
    built = _numbered(_places(list(needed), most, places, rng))
    errand = Errand(kind, plot.thing, plot.place)
    homes = {one: _homes(one, built, errand) for one in stock}
    lying = _things(errand, [one for one in stock if homes[one]], things, rng)
    return House(built, lying, tuple(_picked(homes[one.kind], rng) for one in lying), errand)


@lru_cache(None)
def plots(kind: Kind) -> tuple[Plot, ...]:
    """All that errands of a kind can need."""
    return tuple(plot for room in ROOMS for plot in _plots_in(kind, room))


def _plots_in(kind: Kind, room: str) -> Iterator[Plot]:
    most, stock = ROOMS[room]
    if kind in APPLIANCES and APPLIANCES[kind] not in most:
        return
    lamps = [place for place in most if LAMP in FITS[place] and LAMP in stock]
    for thing in stock:
        if thing == LAMP or thing not in CHANGES.get(kind, stock):
            continue
        fitting = [place for place in most if thing in FITS[place]]
        if kind == Kind.LIGHT:
            yield from (Plot(room, thing, "", source, lamp) for source in fitting for lamp in lamps)
        else:
            yield from (Plot(room, thing, place, other) for place in fitting for other in fitting if other != place)


def _plot(kind: Kind, rng: np.random.Generator) -> Plot:
    """One of them: first a room, then a thing, then its places, each equally often."""
    left = plots(kind)
    for part in range(len(left[0])):
        value = _picked(list(dict.fromkeys(plot[part] for plot in left)), rng)
        left = tuple(plot for plot in left if plot[part] == value)
    return left[0]


def _places(needed: list[str], most: Mapping[str, int], size: int, rng: np.random.Generator) -> list[str]:
    """The kinds of a house's places: what is needed, and others up to its size."""
    chosen = Counter(needed)
    while chosen.total() < size:
        chosen[_picked([kind for kind, many in most.items() if chosen[kind] < many], rng)] += 1
    return list(chosen.elements())


def _things(errand: Errand, stock: list[str], size: int, rng: np.random.Generator) -> tuple[Named, ...]:
    """What lies in a house: what the errand is about, and others up to its size; one lamp at most."""
    chosen = [errand.thing] * (2 if errand.kind == Kind.TWO else 1) + [LAMP] * (errand.kind == Kind.LIGHT)
    while len(chosen) < size:
        chosen.append(_picked([kind for kind in stock if kind != LAMP or LAMP not in chosen], rng))
    return _numbered(chosen)


def _homes(kind: str, places: Sequence[Named], errand: Errand) -> list[int]:
    """Where things of a kind can be at the beginning: what the errand is about is not yet where it belongs."""
    taboo = errand.place if kind == errand.thing else ""
    return [at for at, place in enumerate(places) if kind in FITS[place.kind] and place.kind != taboo]


def _numbered(kinds: Sequence[str]) -> tuple[Named, ...]:
    counts: Counter[str] = Counter()
    result = []
    for kind in sorted(kinds):
        counts[kind] += 1
        result.append(Named(kind, counts[kind]))
    return tuple(result)


def _picked(values: Sequence[T], rng: np.random.Generator) -> T:
    return values[int(rng.integers(len(values)))]
