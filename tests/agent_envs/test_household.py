"""The household: the contract, houses that follow their seed alone, an expert that takes the shortest way, copies."""

import copy
import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agent_envs.actions import render
from agent_envs.adapters.household import expert
from agent_envs.adapters.household.catalogue import FITS, LAMP, ROOMS
from agent_envs.adapters.household.config import HouseholdConfig, Kind, Knows
from agent_envs.adapters.household.env import HouseholdEnv, reworded
from agent_envs.adapters.household.expert import advice
from agent_envs.adapters.household.game import HouseGame
from agent_envs.adapters.household.generate import generated
from agent_envs.adapters.household.goal import score
from agent_envs.adapters.household.house import Errand, House, Named, State
from agent_envs.adapters.household.rules import possible
from agent_envs.adapters.listed import mistaken
from agent_envs.contract.check import ContractError, check_text_env
from agent_envs.contract.oracle import expert_succeeds
from agent_envs.core import SettingsError

ROOT = Path(__file__).resolve().parents[2]


def env_of(*kinds: Kind, max_turns: int = 60, **more: object) -> HouseholdEnv:
    sizes = {"train_tasks": 60, "held_out_tasks": 10, "max_turns": max_turns} | more
    return HouseholdEnv(HouseholdConfig(kinds or tuple(Kind), **sizes))  # type: ignore[arg-type]


def begun(env: HouseholdEnv, number: int = 0) -> HouseGame:
    env.reset(options={"task": env.tasks("train")[number]})
    return env._state.env


def kitchen(kind: Kind, place: str = "fridge") -> House:
    """A house with known contents."""
    places = tuple(Named(one, 1) for one in ("countertop", "desk", "fridge", "microwave", "sinkbasin"))
    things = (Named("apple", 1), Named("apple", 2), Named(LAMP, 1), Named("knife", 1), Named("pen", 1))
    return House(places, things, (0, 2, 1, 0, 0), Errand(kind, "apple", place))


def done(house: House, *commands: str) -> State:
    state = State(house.inside)
    for command in commands:
        state = possible(house, state, idle=True)[command]
    return state


# ---- the contract ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", list(Kind))
def test_each_kind_keeps_the_contract(kind: Kind) -> None:
    check_text_env(lambda: env_of(kind), tasks=2)


@pytest.mark.parametrize("more", [{"places": 4, "things": 3}, {"places": 20, "things": 30}, {"idle": True}])
@pytest.mark.parametrize("knows", list(Knows))
def test_every_size_keeps_it(more: dict[str, object], knows: Knows) -> None:
    check_text_env(lambda: env_of(expert=knows, **more), tasks=2)


def test_too_few_turns_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: an expert that never gets there."""
    monkeypatch.setattr(expert, "_ways", lambda house, state, known: iter(()))
    with pytest.raises(ContractError, match="the expert gets 0 of 1"):
        check_text_env(lambda: env_of(), tasks=2)


# ---- houses ---------------------------------------------------------------------------------------------------------
def transcript() -> list[str]:
    """What a few houses show to somebody who acts by chance, and what both experts say of it."""
    env, rng, seen = env_of(), np.random.default_rng(0), []
    for number in range(12):
        game = begun(env, number)
        seen.append(env.task.prompt)
        for _ in range(6):
            turns = env.valid_turns()
            seen += [advice(game.house, game.state, knows) for knows in Knows]
            seen.append(env.step(turns[int(rng.integers(len(turns)))])[0])
            if env._over:
                break
    return seen


def test_another_process_plays_the_same_houses() -> None:
    """Sets of texts are iterated in another order there."""
    program = "import test_household as t; print(t.transcript(), set('abcdefgh'))"
    said = set()
    for hashed in ("1", "2"):
        path = os.pathsep.join([str(ROOT), str(ROOT / "tests"), str(Path(__file__).parent)])
        environment = os.environ | {"PYTHONHASHSEED": hashed, "PYTHONPATH": path}
        command = [sys.executable, "-c", program]
        said.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(said) == 2, "the control: the order of a set differs"
    assert {one.rpartition(" {")[0] for one in said} == {str(transcript())}


def test_global_generators_do_not_matter_and_are_left_as_they_were() -> None:
    np.random.seed(5)
    want = np.random.get_state()[1].tolist()
    generated.cache_clear()
    house = generated(tuple(Kind), 6, 8, 3)
    assert np.random.get_state()[1].tolist() == want and np.random.get_state()[2] == 624
    np.random.seed(6)
    generated.cache_clear()
    assert generated(tuple(Kind), 6, 8, 3) == house != generated(tuple(Kind), 6, 8, 4)


def test_houses_differ_by_seed_and_the_splits_share_none() -> None:
    env = env_of()
    seeds = {split: {task.data for task in env.tasks(split)} for split in ("train", "valid", "test")}
    assert not seeds["train"] & seeds["valid"] and not seeds["train"] & seeds["test"] | seeds["valid"] & seeds["test"]
    assert len({generated(tuple(Kind), 6, 8, seed) for seed in range(300)}) == 300


@pytest.mark.parametrize(("places", "things"), [(4, 3), (6, 8), (20, 30)])
def test_houses_are_what_the_settings_say(places: int, things: int) -> None:
    kinds: Counter[Kind] = Counter()
    for seed in range(240):
        house = generated(tuple(Kind), places, things, seed)
        kinds[house.errand.kind] += 1
        assert len(house.places) == places and len(house.things) == things == len(house.inside)
        assert len({one.name for one in house.places + house.things}) == places + things
        assert all(house.fits(thing, place) for thing, place in enumerate(house.inside))
        assert score(house, State(house.inside)) == 0
        assert any(named.kind == house.errand.place for named in house.places) or house.errand.kind == Kind.LIGHT
        assert sum(house.lamp(thing) for thing in range(things)) <= 1
    assert min(kinds[kind] for kind in Kind) >= 20


def test_rooms_have_room_for_the_largest_house() -> None:
    for most, stock in ROOMS.values():
        assert set(most) <= set(FITS) and sum(most.values()) >= 20
        assert all(any(thing in FITS[place] for place in most) for thing in stock)
        assert len(set(stock)) == len(stock)


# ---- rules ----------------------------------------------------------------------------------------------------------
def test_what_is_closed_hides_and_keeps() -> None:
    house = kitchen(Kind.PLACE)
    assert not [one for one in possible(house, done(house, "go to fridge 1")) if "apple" in one]
    inside = done(house, "go to fridge 1", "open fridge 1")
    assert "take apple 2 from fridge 1" in possible(house, inside)
    held = done(house, "go to countertop 1", "take apple 1 from countertop 1", "go to fridge 1")
    assert "move apple 1 to fridge 1" not in possible(house, held)
    assert "cool apple 1 with fridge 1" in possible(house, held), "but it cools"


def test_hands_hold_one_thing_and_things_fit_somewhere_only() -> None:
    house = kitchen(Kind.PLACE)
    state = done(house, "go to countertop 1", "take pen 1 from countertop 1")
    assert not [one for one in possible(house, state) if one.startswith("take")]
    assert "move pen 1 to countertop 1" in possible(house, state)
    assert "move pen 1 to sinkbasin 1" not in possible(house, done_from(house, state, "go to sinkbasin 1"))


def done_from(house: House, state: State, *commands: str) -> State:
    for command in commands:
        state = possible(house, state)[command]
    return state


@pytest.mark.parametrize("how", [("clean", "sinkbasin"), ("heat", "microwave"), ("cool", "fridge")])
def test_things_are_changed_where_they_can_be(how: tuple[str, str]) -> None:
    verb, place = how
    house = kitchen(Kind(verb), "sinkbasin")
    here = ("go to countertop 1", "take apple 1 from countertop 1", f"go to {place} 1")
    after = done(house, *here, command := f"{verb} apple 1 with {place} 1")
    assert score(house, after) == 0.5 and score(house, done(house, *here)) == 0
    assert command not in possible(house, done(house, *here[:2], "go to desk 1"))
    pen = ("go to countertop 1", "take pen 1 from countertop 1", f"go to {place} 1")
    assert not [one for one in possible(house, done(house, *pen)) if one.startswith(verb)]


def test_heating_and_cooling_undo_each_other() -> None:
    house = kitchen(Kind.HEAT)
    hot = ("go to countertop 1", "take apple 1 from countertop 1", "go to microwave 1", "heat apple 1 with microwave 1")
    cool = (*hot, "go to fridge 1", "cool apple 1 with fridge 1")
    assert (done(house, *hot).hot, done(house, *hot).cool) == ({0}, set())
    assert (done(house, *cool).hot, done(house, *cool).cool) == (set(), {0})


def test_a_knife_slices_and_a_lamp_is_switched() -> None:
    house = kitchen(Kind.LIGHT, "")
    state = done(house, "go to countertop 1", "take knife 1 from countertop 1", "slice apple 1 with knife 1")
    assert state.sliced == {0} and "slice pen 1 with knife 1" not in possible(house, state)
    lit = ("go to countertop 1", "take apple 1 from countertop 1", "go to desk 1", "use desklamp 1")
    assert score(house, done(house, *lit)) == score(house, done(house, *lit, "use desklamp 1")) == 1
    assert score(house, done(house, *lit, "go to fridge 1")) == 0.5 == score(house, done(house, *lit[:2]))
    assert f"take {LAMP} 1 from desk 1" not in possible(house, done(house, "go to desk 1"))


def test_two_things_count_at_one_place() -> None:
    places = (Named("cabinet", 1), Named("shelf", 1), Named("shelf", 2))
    things = (Named("mug", 1), Named("mug", 2))
    house = House(places, things, (0, 0), Errand(Kind.TWO, "mug", "shelf"))
    assert [score(house, State(inside)) for inside in ((0, 0), (1, 0), (1, 2), (2, 2))] == [0, 0.5, 0.5, 1]


def test_commands_that_change_nothing_are_taken_where_they_are_wanted() -> None:
    house = kitchen(Kind.PLACE)
    state = done(house, "go to countertop 1", "take pen 1 from countertop 1")
    idle = set(possible(house, state, idle=True)) - set(possible(house, state))
    assert idle == {"look", "inventory", "help", "examine countertop 1", "examine pen 1"}
    assert all(possible(house, state, idle=True)[one] == state for one in idle)


# ---- the expert -----------------------------------------------------------------------------------------------------
def shortest(house: House, state: State) -> int:
    """Commands to the goal, by trying all; no rule reads what was seen."""
    front, known, length = [replace(state, seen=frozenset())], set(), 0
    while not any(score(house, one) == 1 for one in front):
        known |= set(front)
        after = {replace(one, seen=frozenset()) for state in front for one in possible(house, state).values()}
        front, length = [one for one in after if one not in known], length + 1
    return length


@pytest.mark.parametrize("kind", list(Kind))
def test_its_way_is_a_shortest_one(kind: Kind) -> None:
    """After a few commands at random, too."""
    rng = np.random.default_rng(0)
    for seed in range(4):
        house = generated((kind,), 4, 4, seed)
        state = State(house.inside)
        for _ in range(3 * (seed % 2)):
            state = list(possible(house, state).values())[int(rng.integers(len(possible(house, state))))]
        length = shortest(house, state)
        assert commands_to_the_end(house, state, Knows.ALL) == length
        assert commands_to_the_end(house, state, Knows.SEEN) >= length


def commands_to_the_end(house: House, state: State, knows: Knows) -> int:
    for length in range(100):
        if score(house, state) == 1:
            return length
        state = possible(house, state)[advice(house, state, knows)]
    raise AssertionError("it does not get there")


@pytest.mark.parametrize("knows", list(Knows))
def test_it_gets_there_after_anything_that_was_done(knows: Knows) -> None:
    env, rng = env_of(max_turns=150, places=7, things=12, expert=knows), np.random.default_rng(0)
    for number in range(60):
        begun(env, number)
        over = False
        for _ in range(int(rng.integers(40))):
            turns = env.valid_turns()
            over = over or env.step(turns[int(rng.integers(len(turns)))])[2]
            if over:
                break
        assert over or expert_succeeds(env), number


def test_the_one_that_searches_knows_what_was_seen_only() -> None:
    """Wherever the thing lies that it has not seen, it looks into the same places first."""
    house = kitchen(Kind.COOL, "sinkbasin")
    moved = replace(house, inside=(3, 2, 1, 0, 0))
    first = [advice(one, State(one.inside), Knows.SEEN) for one in (house, moved)]
    assert first == ["go to countertop 1"] * 2
    assert [advice(one, done(one, first[0]), Knows.SEEN)[:4] for one in (house, moved)] == ["take", "go t"]
    known = [advice(one, State(one.inside), Knows.ALL) for one in (house, replace(house, inside=(3, 3, 1, 0, 0)))]
    assert known == ["go to countertop 1", "go to microwave 1"], "the control: the other one knows"


def test_a_flawed_demonstrator_walks_past() -> None:
    env, rng = env_of(), np.random.default_rng(0)
    walked = 0
    for number in range(10):
        begun(env, number)
        for _ in range(3):
            right, flawed = env.expert(), env.expert(flaw=1.0, rng=rng)
            assert flawed.startswith(render("ACT", "go ")[:-10])
            assert right == flawed or "go to" not in right
            walked += right != flawed
            env.step(right)
    assert walked >= 10
    assert mistaken("go to bed 1", ("go to desk 1",), rng) == "go to bed 1"
    with pytest.raises(ValueError, match="needs an rng"):
        env.expert(flaw=0.5)


# ---- the environment ------------------------------------------------------------------------------------------------
def test_a_copy_goes_its_own_way() -> None:
    env = env_of()
    game = begun(env)
    twin, frozen = copy.deepcopy(game), pickle.loads(pickle.dumps(game))
    twin.step(next(iter(twin.commands)))
    assert game.state == frozen.state != twin.state and twin.begun and not game.begun
    assert dict(game.commands) == frozen.commands != twin.commands
    assert twin.house is game.house, "the house itself is not copied"


def test_what_is_not_possible_is_refused() -> None:
    env = env_of()
    before = begun(env).state
    for action in ("take moon", "look", "go to fridge 1; open fridge 1", "<|im_end|>", "go to fridge 99"):
        seen, _, _, _, info = env.step(render("ACT", action))
        assert info["invalid"] and "what can is" in seen
    assert env._state.env.state == before and env._state.actions == ()
    turn = env.expert()
    assert not env.step(turn.replace("go to", " Go  TO "))[4]["invalid"], "neither capitals nor spaces matter"


def test_older_words_for_putting_are_taken() -> None:
    assert (
        reworded("put apple 1 in/on fridge 1") == reworded("Put apple 1  in/on fridge 1") == "move apple 1 to fridge 1"
    )
    assert reworded("put apple 1 into fridge 1") == "put apple 1 into fridge 1"
    env = env_of(Kind.PLACE)
    begun(env)
    while "ACT(move" not in (turn := env.expert()):
        env.step(turn)
    info = env.step(turn.replace("move", "put").replace(" to ", " in/on "))[4]
    assert info["success"] and env._state.actions[-1].startswith("move ")


def test_what_is_seen() -> None:
    env = env_of()
    begun(env)
    game: HouseGame = env._state.env
    game.house = kitchen(Kind.HEAT)
    game._stands(State(game.house.inside))
    ways = [f"go to {one} 1" for one in ("countertop", "desk", "fridge", "microwave", "sinkbasin")]
    assert env.shown(env._state).splitlines() == ["errand: put a hot apple in/on a fridge", *ways]

    def shown(*commands: str) -> list[str]:
        return [line for command in commands for line in [env.step(render("ACT", command))[0]]][-1].splitlines()

    assert shown("go to fridge 1") == [
        "fridge 1: closed",
        *(one for one in ways if "fridge" not in one),
        "open fridge 1",
    ]
    assert shown("open fridge 1")[0] == "fridge 1: apple 2"
    lines = shown("take apple 2 from fridge 1", "go to microwave 1", "heat apple 2 with microwave 1")
    assert (
        lines[:2] == ["microwave 1: closed", "carrying: apple 2 (hot)"] and lines[-1] == "heat apple 2 with microwave 1"
    )
    _, reward, terminated, _, info = [
        env.step(render("ACT", one)) for one in ("go to fridge 1", "move apple 2 to fridge 1")
    ][-1]
    assert (reward, terminated, info["success"], info["metrics"]["score"]) == (1.0, True, True, 1.0)


def test_the_score_tells_how_far_it_came() -> None:
    env = env_of(Kind.TWO, max_turns=7)
    scores: Sequence[float] = [
        last["metrics"]["score"] for number in range(20) if not (last := played(env, number))["success"]
    ]
    assert 0.5 in scores and set(scores) <= {0.0, 0.5}


def played(env: HouseholdEnv, number: int) -> dict[str, object]:
    begun(env, number)
    while True:
        _, _, terminated, truncated, info = env.step(env.expert())
        if terminated or truncated:
            return info


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"places": 3}, "places must be from 4 to 20, not 3"),
        ({"things": 31}, "things must be from 3 to 30, not 31"),
        ({"kinds": ()}, "kinds must be distinct ones of place, two, light, clean, heat, cool, not none"),
        ({"kinds": ("heat", "heat")}, "kinds must be distinct ones of .*, not heat heat"),
        ({"kinds": ("bake",)}, "kinds must be distinct ones of .*, not bake"),
        ({"max_turns": 0}, "max_turns must be at least 1, not 0"),
    ],
)
def test_wrong_settings_are_one_line(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=rf"^household: {message}$"):
        HouseholdConfig(**settings)  # type: ignore[arg-type]
