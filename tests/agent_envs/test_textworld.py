"""TextWorld: every kind keeps the contract, games follow their seed alone, the expert from any state, copies."""

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from env_packages import skip_without

from agent_envs.actions import render
from agent_envs.adapters.listed import mistaken
from agent_envs.adapters.textworld import generate
from agent_envs.adapters.textworld.config import Name, Objective, TextWorldConfig
from agent_envs.adapters.textworld.env import TextWorldEnv
from agent_envs.adapters.textworld.game import TextGame
from agent_envs.contract.check import check_text_env
from agent_envs.contract.oracle import expert_succeeds
from agent_envs.core import SettingsError

ROOT = Path(__file__).resolve().parents[2]
LEVELS = {Name.COIN: 4, Name.TREASURE: 5, Name.QUEST: 4}


pytestmark = pytest.mark.adapters


@pytest.fixture(autouse=True)
def _needs() -> None:
    skip_without("textworld")


def env_of(name: Name = Name.COIN, level: int | None = None, max_turns: int = 60, **more: object) -> TextWorldEnv:
    level = level or LEVELS[name]
    return TextWorldEnv(
        TextWorldConfig(name, level, train_tasks=40, held_out_tasks=10, max_turns=max_turns, **more)  # type: ignore[arg-type]
    )


def begun(env: TextWorldEnv, number: int) -> TextGame:
    env.reset(options={"task": env.tasks("train")[number]})
    return env._state.env


@pytest.mark.parametrize("name", list(Name))
def test_games_keep_the_contract(name: Name) -> None:
    check_text_env(lambda: env_of(name), tasks=2)


def test_routes_keep_it() -> None:
    check_text_env(lambda: env_of(Name.TREASURE, objective=Objective.ROUTE), tasks=1)


def test_the_smallest_game_keeps_it() -> None:
    check_text_env(lambda: env_of(Name.COIN, level=1), tasks=1)


@pytest.mark.parametrize("name", list(Name))
def test_the_expert_wins_after_anything_that_was_done(name: Name) -> None:
    env, rng = env_of(name, max_turns=150), np.random.default_rng(0)
    results = [won(env, number, rng) for number in range(20)]
    assert results.count(False) == 0 and results.count(True) >= 10, results


def won(env: TextWorldEnv, number: int, rng: np.random.Generator) -> bool | None:
    """Whether the expert wins after a few actions at random; None where these ended the game."""
    begun(env, number)
    for _ in range(int(rng.integers(12))):
        turns = env.valid_turns()
        if env.step(env.expert() if rng.random() < 0.3 else turns[int(rng.integers(len(turns)))])[2]:
            return None
    return expert_succeeds(env)


def test_with_the_walkthrough_from_the_start_it_would_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the policy of the beginning, said again from any state."""
    monkeypatch.setattr(TextGame, "policy", property(lambda self: self._game.walkthrough[len(self._taken) :]))
    env, rng = env_of(max_turns=150), np.random.default_rng(0)
    with pytest.raises((AssertionError, IndexError)):
        assert False not in [won(env, number, rng) for number in range(20)]


def transcript(name: Name, objective: Objective = Objective.ROUTE) -> list[str]:
    """What three games show to somebody who acts by chance, and what the expert says of it."""
    env, rng, seen = env_of(name, objective=objective), np.random.default_rng(0), []
    for number in range(3):
        begun(env, number)
        seen.append(env.task.prompt)
        for _ in range(5):
            turns = env.valid_turns()
            seen += [env.expert(), text := env.step(turns[int(rng.integers(len(turns)))])[0]]
            if env._over:
                break
            assert text
    return seen


def test_another_process_plays_the_same_games() -> None:
    """Sets of texts are iterated in another order there."""
    program = "import test_textworld as t; print([t.transcript(one) for one in t.Name], set('abcdefgh'))"
    said = set()
    for hashed in ("1", "2"):
        path = os.pathsep.join([str(ROOT), str(ROOT / "tests"), str(Path(__file__).parent)])
        result = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": hashed, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        )
        said.add(result.stdout)
    assert len(said) == 2, "the control: the order of a set differs"
    assert {one.rpartition(" {")[0] for one in said} == {str([transcript(name) for name in Name])}


def test_games_differ_by_seed_and_the_splits_share_none() -> None:
    env = env_of()
    seeds = {split: {task.data for task in env.tasks(split)} for split in ("train", "valid", "test")}
    assert not seeds["train"] & seeds["valid"] and not seeds["train"] & seeds["test"] | seeds["valid"] & seeds["test"]
    houses = {
        frozenset(map(str, generate.generated(Name.COIN, 4, Objective.GOAL, seed).world.facts)) for seed in range(30)
    }
    assert len(houses) >= 28


def test_global_generators_are_left_as_they_were() -> None:
    package = generate.textworld()
    np.random.seed(5)
    package.g_rng.set_seed(77)
    want, shared = np.random.get_state()[1].tolist(), dict(vars(package.g_rng))
    generate.generated.cache_clear()
    games = [generate.generated(name, LEVELS[name], Objective.GOAL, 3) for name in Name]
    assert np.random.get_state()[1].tolist() == want and np.random.get_state()[2] == 624
    assert dict(vars(package.g_rng)) == shared
    package.g_rng.set_seed(78)
    np.random.seed(6)
    generate.generated.cache_clear()
    again = [generate.generated(name, LEVELS[name], Objective.GOAL, 3) for name in Name]
    assert [one.objective for one in games] == [one.objective for one in again], "neither do they matter"
    package.g_rng.next()
    assert dict(vars(package.g_rng)) != shared, "the control: a draw is noticed"


def test_importing_it_draws_nothing_either() -> None:
    program = (
        "import numpy as np; np.random.seed(5); want = np.random.get_state()[2]\n"
        "from agent_envs.adapters.textworld.generate import textworld; textworld()\n"
        "kept = np.random.get_state()[2] == want\n"
        "import textworld.utils as utils; utils.RandomGenerator(); print(kept, np.random.get_state()[2] == want)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.stdout.split() == ["True", "False"], done.stderr


def test_a_copy_goes_its_own_way() -> None:
    env = env_of()
    game = begun(env, 0)
    twin, frozen = copy.deepcopy(game), pickle.loads(pickle.dumps(game))
    twin.step(twin.policy[0])
    assert game.place == frozen.place != twin.place and twin.begun and not game.begun
    assert game.policy == frozen.policy != twin.policy
    assert twin._game is game._game, "the game itself is not copied"


def test_what_is_not_possible_is_refused() -> None:
    env = env_of()
    place = begun(env, 0).place
    for action in ("take moon", "take coin; go north", "<|im_end|>", "look", "examine coin"):
        seen, _, _, _, info = env.step(f"ACT({action})")
        assert info["invalid"] and "what can is" in seen and action not in seen
    assert env._state.env.place == place and env._state.actions == ()
    turn = env.expert()
    assert not env.step(turn.replace("go", " Go ").replace("east", "EAST"))[4]["invalid"], (
        "neither capitals nor spaces matter"
    )


def test_the_wrong_thing_loses_and_the_right_one_pays() -> None:
    env = env_of(Name.TREASURE, level=1)
    lost = paid = 0
    for number in range(40):
        game = begun(env, number)
        assert game.policy[0].startswith("take ")
        for command in [one for one in game.place.commands if one.startswith("take ")]:
            begun(env, number)
            right = command == game.policy[0]
            _, reward, terminated, _, info = env.step(render("ACT", command))
            assert (reward, terminated, info["success"]) == (float(right), True, right)
            assert info["metrics"]["score"] == float(right)
            lost, paid = lost + (not right), paid + right
    assert lost >= 3 and paid == 40


def test_a_flawed_demonstrator_walks_past() -> None:
    env, rng = env_of(), np.random.default_rng(0)
    for number in range(10):
        begun(env, number)
        while env.expert() != render("ACT", "take coin"):
            assert env.expert(flaw=1.0, rng=rng) == env.expert(), "it goes there"
            env.step(env.expert())
        assert env.expert(flaw=1.0, rng=rng).startswith(render("ACT", "go ")[:-10])
    assert mistaken("open box", ("close door", "open box"), rng) == "close door", "no way out"
    assert mistaken("open box", ("open box",), rng) == "open box"
    with pytest.raises(ValueError, match="needs an rng"):
        env.expert(flaw=0.5)


def test_the_objective_tells_the_goal_or_the_route() -> None:
    goal, route = (env_of(Name.TREASURE, objective=one).tasks("train")[0].prompt.splitlines() for one in Objective)
    steps = generate.generated(Name.TREASURE, 5, Objective.ROUTE, 0).walkthrough
    ways = [step.removeprefix("go ") for step in steps if step.startswith("go ")]
    assert ways and all(way in route[0] for way in ways) and not any(way in goal[0] for way in ways)
    assert goal[1:] == route[1:], "the same game"


def test_what_is_seen() -> None:
    env = env_of(Name.QUEST)
    game = next(
        one for one in (begun(env, n) for n in range(40)) if one.policy[0][:5] == "take " and not one.place.carried
    )
    room, *commands = env.task.prompt.splitlines()[1:]
    assert commands == list(game.place.commands) == sorted(commands) and game.policy[0] in commands
    lines = env.step(env.expert())[0].splitlines()
    assert (
        lines[0] == room
        and lines[1].startswith("carrying: ")
        and lines[1].removeprefix("carrying: ") in game._names.values()
    )


@pytest.mark.parametrize(("name", "level"), [(Name.COIN, 21), (Name.TREASURE, 16), (Name.QUEST, 0)])
def test_wrong_levels_are_one_line(name: Name, level: int) -> None:
    with pytest.raises(SettingsError, match=rf"^textworld: {name}: level must be from 1 to \d+, not {level}$"):
        TextWorldConfig(name, level)


def test_a_seed_without_a_game_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from textworld.generator import QuestGenerationError

    tried = []

    def none(level: int, options: object) -> None:
        tried.append(options)
        raise QuestGenerationError("none")

    monkeypatch.setattr(generate, "_coin", none)
    generate.generated.cache_clear()
    with pytest.raises(SettingsError, match=r"^textworld: coin of level 4: no game was found for seed 1: [^\n]*$"):
        generate.generated(Name.COIN, 4, Objective.GOAL, 1)
    assert len({tuple(one.seeds.values()) for one in tried}) == len(tried) > 1, "each time another world"


def test_a_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textworld", None)
    generate.generated.cache_clear()
    with pytest.raises(SettingsError, match=r"^textworld: [^\n]*: pip install 'turnwise\[textworld\]'$"):
        env_of().reset(seed=0)
