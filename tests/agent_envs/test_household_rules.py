"""The household's rules are those of ALFWorld's domain file: both are played side by side, step by step.

The file and its grammar come from the package `alfworld`; they are played by TextWorld's engine for PDDL, which is the
one that ALFWorld uses. `pip install alfworld` brings both, and builds the engine with CMake and a C++ compiler. Skipped
without them unless TURNWISE_NEEDS_ALFWORLD is set.
"""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent_envs.adapters.household import rules
from agent_envs.adapters.household.catalogue import CHANGES, FITS, LAMP, SLICEABLE
from agent_envs.adapters.household.config import Kind, Knows
from agent_envs.adapters.household.expert import advice
from agent_envs.adapters.household.generate import generated
from agent_envs.adapters.household.goal import score
from agent_envs.adapters.household.house import Errand, House, Named, State

CHANGING = {Kind.CLEAN: "cleanable", Kind.HEAT: "heatable", Kind.COOL: "coolable"}
RIGHT = rules._heat


@pytest.fixture(scope="module")
def data() -> dict[str, str]:
    """ALFWorld's domain and its grammar."""
    for needed in ("alfworld", "textworld", "fast_downward"):
        if find_spec(needed) is None:
            missing = f"{needed} is not installed: pip install alfworld"
            pytest.fail(missing) if os.environ.get("TURNWISE_NEEDS_ALFWORLD") else pytest.skip(missing)
    spec = find_spec("alfworld")
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parent / "data"
    grammar = (folder / "alfred.twl2").read_text("utf-8")
    return {"pddl_domain": (folder / "alfred.pddl").read_text("utf-8"), "grammar": grammar}


def symbol(name: str) -> str:
    return name.replace(" ", "_")


def problem(house: House) -> str:
    """A house as a problem of that domain."""
    places, things = ([symbol(one.name) for one in many] for many in (house.places, house.things))
    kinds = sorted({f"{one.kind}Type" for one in house.places} | {"SinkBasinType", "MicrowaveType", "FridgeType"})
    sorts = sorted({f"{one.kind}Type" for one in house.things} | {"KnifeType", "ButterKnifeType"})
    objects = ["agent1 - agent", "l_start - location", *(f"l_{one} - location" for one in places)]
    objects += [f"{one} - receptacle" for one in places] + [f"{one} - object" for one in things]
    objects += [f"{one} - rtype" for one in unlike(kinds)] + [f"{one} - otype" for one in unlike(sorts)]
    facts = "\n".join(f"({one})" for one in static(house))
    return (
        f"(define (problem house) (:domain alfred) (:objects {' '.join(objects)})\n"
        f"(:init (= (total-cost) 0) (atLocation agent1 l_start)\n{facts})\n(:goal {goal(house)}))"
    )


def unlike(names: list[str]) -> list[str]:
    """PDDL knows no capitals: of names that differ by them only, one."""
    return list({one.casefold(): one for one in names}.values())


def static(house: House) -> Iterator[str]:
    for at, place in enumerate(house.places):
        name = symbol(place.name)
        yield f"receptacleAtLocation {name} l_{name}"
        yield f"receptacleType {name} {place.kind}Type"
        if house.openable(at):
            yield f"openable {name}"
    for kind in sorted({one.kind for one in house.places}):
        for sort in sorted({one.kind for one in house.things} & FITS[kind]):
            yield f"canContain {kind}Type {sort}Type"
    for thing, at in zip(house.things, house.inside, strict=True):
        name, place = symbol(thing.name), symbol(house.places[at].name)
        yield f"objectType {name} {thing.kind}Type"
        yield f"inReceptacle {name} {place}"
        yield f"objectAtLocation {name} l_{place}"
        yield f"{'toggleable' if thing.kind == LAMP else 'pickupable'} {name}"
        yield from (f"{word} {name}" for kind, word in CHANGING.items() if thing.kind in CHANGES[kind])
        if thing.kind in SLICEABLE:
            yield f"sliceable {name}"


def goal(house: House) -> str:
    """The goals of ALFWorld's six kinds of tasks, as it says them in PDDL."""
    errand = house.errand
    it, there = f"(objectType ?o {errand.thing}Type)", f"(receptacleType ?r {errand.place}Type)"
    if errand.kind == Kind.LIGHT:
        lit = f"(objectType ?t {LAMP}Type) (toggleable ?t) (isToggled ?t) (inReceptacle ?t ?r)"
        here = "(receptacleAtLocation ?r ?l) (atLocation agent1 ?l)"
        lamp = f"(exists (?t - object ?r - receptacle ?l - location) (and {lit} {here}))"
        return f"(and {lamp} (exists (?o - object) (and {it} (holds agent1 ?o))))"
    if errand.kind == Kind.TWO:
        other = f"(exists (?p - object) (and (not (= ?o ?p)) (objectType ?p {errand.thing}Type) (inReceptacle ?p ?r)))"
        return f"(exists (?r - receptacle) (exists (?o - object) (and {it} {there} (inReceptacle ?o ?r) {other})))"
    done = {Kind.CLEAN: "(isClean ?o)", Kind.HEAT: "(isHot ?o)", Kind.COOL: "(isCool ?o)"}.get(errand.kind, "")
    return f"(exists (?r - receptacle) (exists (?o - object) (and {it} {there} (inReceptacle ?o ?r) {done})))"


def facts_of(house: House, state: State) -> set[str]:
    """What changes, in the domain's words."""
    at = "l_start" if state.at is None else f"l_{symbol(house.places[state.at].name)}"
    facts = {f"atlocation agent1 {at}"}
    things = [symbol(one.name) for one in house.things]
    for thing, place in enumerate(state.inside):
        if place is None:
            facts |= {f"holds agent1 {things[thing]}", "holdsany agent1"}
        else:
            where = symbol(house.places[place].name)
            facts |= {f"inreceptacle {things[thing]} {where}", f"objectatlocation {things[thing]} l_{where}"}
    facts |= {f"opened {symbol(house.places[place].name)}" for place in state.opened}
    done = {
        "isclean": state.clean, "ishot": state.hot, "iscool": state.cool,
        "issliced": state.sliced, "ison": state.on, "istoggled": state.toggled,
    }  # fmt: skip
    return facts | {f"{word} {things[thing]}" for word, which in done.items() for thing in which}


FLUENT = {
    "atlocation", "holds", "holdsany", "inreceptacle", "objectatlocation", "opened",
    "isclean", "ishot", "iscool", "issliced", "ison", "istoggled",
}  # fmt: skip


class Reference:
    """ALFWorld's domain, played by TextWorld."""

    def __init__(self, data: dict[str, str], house: House) -> None:
        import textworld
        from textworld.envs.pddl import PddlEnv

        self.env = PddlEnv(textworld.EnvInfos(facts=True, admissible_commands=True, won=True))
        self.env.load({**data, "pddl_problem": problem(house)})
        for info in self.env._entity_infos.values():
            info.name = info.name.replace("_", " ")
        self.now: Any = self.env.reset()

    def step(self, command: str) -> None:
        self.now, _, _ = self.env.step(command)

    @property
    def facts(self) -> set[str]:
        """What the engine holds: TextWorld's own list of facts leaves out what a condition decides."""
        from textworld.envs.pddl.logic import Atom

        engine = self.env.downward_lib
        atoms = (Atom * engine.get_state_size())()
        engine.get_state(atoms)
        facts = (atom.name.removeprefix("Atom ").rstrip(")") for atom in atoms if atom.name.startswith("Atom "))
        held = (fact.replace("(", " ").replace(",", "") for fact in facts)
        return {fact for fact in held if fact.split()[0] in FLUENT}


def full(kind: Kind) -> House:
    """A small house where every rule applies."""
    places = tuple(Named(one, 1) for one in ("countertop", "desk", "fridge", "microwave", "sinkbasin"))
    things = (Named("apple", 1), Named("apple", 2), Named(LAMP, 1), Named("knife", 1), Named("mug", 1), Named("pen", 1))
    return House(places, things, (0, 2, 1, 0, 1, 0), Errand(kind, "apple", "" if kind == Kind.LIGHT else "fridge"))


def walk(data: dict[str, str], house: House, steps: int, taken: Counter[str]) -> None:
    """Plays both: every other time a way, else what was done least often. Raises AssertionError where they differ."""
    reference, state, rng = Reference(data, house), State(house.inside), np.random.default_rng(0)
    for _ in range(steps):
        ours = rules.possible(house, state, idle=True)
        here = "" if state.at is None else f"go to {house.places[state.at].name}"
        assert set(ours) == set(reference.now["admissible_commands"]) - {here}
        assert facts_of(house, state) == reference.facts
        assert (score(house, state) == 1) == reference.now["won"]
        ways = [one for one in ours if one.startswith("go ")]
        others = [str(one) for one in rng.permutation(list(ours)) if one not in ways]
        go = state.at is None or rng.random() < 0.4
        command = ways[int(rng.integers(len(ways)))] if go else min(others, key=lambda one: taken[one.split()[0]])
        taken[command.split()[0]] += 1
        reference.step(command)
        state = ours[command]


def test_both_play_alike(data: dict[str, str]) -> None:
    taken: Counter[str] = Counter()
    walk(data, full(Kind.COOL), 300, taken)
    assert len(taken) == 14 and min(taken.values()) >= 5, taken


@pytest.mark.parametrize("kind", list(Kind))
def test_both_find_the_errand_done(data: dict[str, str], kind: Kind) -> None:
    """The expert's way in a house of each kind, after a few commands at random."""
    house = generated((kind,), 5, 6, 1)
    reference, state, rng = Reference(data, house), State(house.inside), np.random.default_rng(0)
    for turn in range(30):
        ours = rules.possible(house, state)
        command = advice(house, state, Knows.ALL) if turn >= 8 else str(rng.choice(list(ours)))
        reference.step(command)
        state = ours[command]
        assert facts_of(house, state) == reference.facts
        if reference.now["won"] or score(house, state) == 1:
            break
    assert reference.now["won"] and score(house, state) == 1


def test_another_rule_is_noticed(data: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: a microwave that keeps cool things cool."""

    def heat(house: House, state: State) -> rules.Steps:
        yield from ((command, replace(after, cool=state.cool)) for command, after in RIGHT(house, state))

    monkeypatch.setattr(rules, "_heat", heat)
    with pytest.raises(AssertionError, match="iscool"):
        walk(data, full(Kind.COOL), 300, Counter())
