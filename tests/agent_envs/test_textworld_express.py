"""TextWorld-Express: every game keeps the contract, the expert from any state, views, forks by replay."""

import numpy as np
import pytest
from env_packages import skip_without

from agent_envs.actions import render
from agent_envs.adapters.textworld_express import expert, game, plan
from agent_envs.adapters.textworld_express.config import GameOutcome, GameView, Name, TextWorldExpressConfig
from agent_envs.adapters.textworld_express.env import TextWorldExpressEnv
from agent_envs.adapters.textworld_express.server import server
from agent_envs.adapters.textworld_express.view import exits_of, room_of, useful
from agent_envs.contract.check import check_text_env
from agent_envs.contract.oracle import expert_succeeds
from agent_envs.core import BackendUnavailable, SettingsError

pytestmark = pytest.mark.adapters


@pytest.fixture(autouse=True)
def _needs() -> None:
    skip_without("textworld_express")


SMALL = {
    Name.COIN: "numLocations=5",
    Name.COOKINGWORLD: "numLocations=2,numIngredients=1,numDistractorItems=1,includeDoors=0",
    Name.MAPREADER: "numLocations=4,maxDistanceApart=2,maxDistractorItemsPerLocation=1",
    Name.TWC: "numLocations=2,numItemsToPutAway=2,includeDoors=1,limitInventorySize=1",
    Name.SIMONSAYS: "gameLength=4",
}


def env_of(
    name: Name = Name.COIN, params: str | None = None, max_turns: int = 60, **more: object
) -> TextWorldExpressEnv:
    params = SMALL.get(name, "") if params is None else params
    return TextWorldExpressEnv(
        TextWorldExpressConfig(name, params, train_tasks=60, held_out_tasks=10, max_turns=max_turns, **more)
    )  # type: ignore[arg-type]


def begun(env: TextWorldExpressEnv, number: int) -> game.Played:
    env.reset(options={"task": env.tasks("train")[number]})
    return env._state.env.played


@pytest.mark.parametrize("name", list(Name))
def test_games_keep_the_contract(name: Name) -> None:
    check_text_env(lambda: env_of(name), tasks=2)


@pytest.mark.parametrize("view", [GameView.GAME, GameView.FULL])
def test_other_views_and_the_score_keep_it(view: GameView) -> None:
    check_text_env(lambda: env_of(view=view, outcome=GameOutcome.SCORE), tasks=1)


def won(env: TextWorldExpressEnv, number: int, rng: np.random.Generator) -> bool | None:
    """Whether the expert wins after a few actions at random; None where these ended the game."""
    now = begun(env, number)
    for _ in range(int(rng.integers(12))):
        action = now.reply.valid[int(rng.integers(len(now.reply.valid)))]
        if action.startswith("eat "):
            continue  # what is eaten is lost
        if env.step(env.expert() if rng.random() < 0.4 else render("ACT", action))[2]:
            return None
    return expert_succeeds(env)


@pytest.mark.parametrize("name", list(Name))
def test_the_expert_wins_after_anything_that_was_done(name: Name) -> None:
    env, rng = env_of(name, max_turns=150), np.random.default_rng(0)
    results = [won(env, number, rng) for number in range(30)]
    assert results.count(False) == 0 and results.count(True) >= 5, results


def test_without_a_way_back_it_would_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expert.Progress, "_undoing", lambda self, action: "")
    env, rng = env_of(params="numLocations=8,includeDoors=0"), np.random.default_rng(0)
    assert False in [won(env, number, rng) for number in range(30)]


@pytest.mark.parametrize("name", [Name.COIN, Name.TWC])
def test_plans_are_the_same_each_time_where_the_shipped_solution_is_not(name: Name) -> None:
    one = game.TextGame(name, "")
    plans, shipped = ({tuple(solve(seed)) for _ in range(4) for seed in (3, 4, 20_081)} for solve in (
        lambda seed: plan.plan_of(one, seed), one.gold,
    ))  # fmt: skip
    assert len(plans) == 3 < len(shipped)


def test_needless_steps_are_left_out() -> None:
    walk = ("move east", "move west", "move north", "open door to east", "move north", "move south", "take coin")
    assert plan.straight(walk) == ("move north", "open door to east", "take coin")


def test_a_fork_before_the_first_episode_begins_its_own() -> None:
    env = env_of()
    twin = env.fork()
    task = env.tasks("train")[0]
    assert twin.reset(options={"task": task})[0] == env.reset(options={"task": task})[0]


def test_folds_are_the_splits() -> None:
    env = env_of(Name.SIMONSAYS)
    words = {split: {env.tasks(split)[i].prompt.split()[-1] for i in range(10)} for split in ("train", "valid", "test")}
    assert not words["train"] & words["test"] and not words["train"] & words["valid"], "each has things of its own"
    assert [env.tasks(split)[1].data for split in ("train", "valid", "test")] == [1, 10_001, 20_001]


def test_the_short_view_has_what_matters() -> None:
    env = env_of(params="numLocations=7")
    closed = next(now for now in (begun(env, n) for n in range(20)) if "" in exits_of(now.reply.look).values())
    way = next(way for way, there in exits_of(closed.reply.look).items() if not there)
    lines = env.task.prompt.splitlines()
    assert lines[0] == closed.task and lines[1] == room_of(closed.reply.look) and f"open door to {way}" in lines
    assert f"move {way}" in closed.reply.valid and f"move {way}" not in useful(closed.reply), "against a closed door"
    seen = env.step(f"ACT(Open  DOOR to {way})")[0].splitlines()
    there = exits_of(closed.reply.look)[way]
    assert there and seen[0].endswith(f"revealing the {there.removeprefix('the ')}.") and f"move {way}: {there}" in seen


def test_what_is_not_possible_is_refused() -> None:
    env = env_of()
    begun(env, 0)
    before = env._state.env.played.reply
    for action in ("take moon", "take coin; move north", "<|im_end|>", "jump"):
        seen, _, _, _, info = env.step(f"ACT({action})")
        assert info["invalid"] and "what can is" in seen and action not in seen
    assert env._state.env.played.reply == before and env._state.actions == ()


def test_rewards() -> None:
    paid = {}
    for outcome in GameOutcome:
        env = env_of(Name.SIMONSAYS, outcome=outcome)
        begun(env, 0)
        paid[outcome] = [round(env.step(env.expert())[1], 2) for _ in range(4)]
    assert paid == {GameOutcome.SUCCESS: [0, 0, 0, 1], GameOutcome.SCORE: [0.25] * 4}
    now = begun(env, 0)
    wrong = next(one for one in now.reply.valid if one not in now.reply.text)
    _, reward, terminated, _, info = env.step(f"ACT({wrong})")
    assert (reward, terminated, info["success"]) == (-1.0, True, False) and info["metrics"]["score"] == -1.0


def test_games_of_one_seed_do_not_disturb_each_other() -> None:
    env = env_of(Name.SORTING)
    begun(env, 0)
    twin = env.fork()
    for _ in range(3):
        assert env.step(env.expert()) == twin.step(twin.expert())
    env.step(env.expert())
    assert twin._state.env.played.reply.look != env._state.env.played.reply.look


def test_without_seats_of_their_own_they_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(game, "SHARING", frozenset())
    server().idle.clear()  # there is a seat that all use
    with pytest.raises((AssertionError, BackendUnavailable)):
        test_games_of_one_seed_do_not_disturb_each_other()


def test_a_replay_that_shows_something_else_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    env = env_of(Name.SIMONSAYS)
    begun(env, 0)
    env.step(env.expert())
    env.fork()
    monkeypatch.setattr(game, "FOLDS", ("test", "dev", "test"))
    with pytest.raises(
        BackendUnavailable, match="simonsays: the same actions led to something else: it cannot be forked"
    ):
        env.fork()


def test_a_flawed_demonstrator_walks_past() -> None:
    env, rng = env_of(params="numLocations=7,includeDoors=0"), np.random.default_rng(0)
    passed = 0
    for number in range(20):
        begun(env, number)
        while env.expert() != render("ACT", "take coin"):
            assert env.expert(flaw=1.0, rng=rng) == env.expert(), "it goes there"
            env.step(env.expert())
        passed += env.expert(flaw=1.0, rng=rng).startswith(render("ACT", "move ")[:-10])
    assert passed == 20
    with pytest.raises(ValueError, match="needs an rng"):
        env.expert(flaw=0.5)


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ("numRooms=3", "coin: Unrecognized property name (numRooms).  Known properties"),
        ("numLocations=99", "less than or equal to 11"),
        ("numLocations", "params must be name=number,name=number, not 'numLocations'"),
        ("numLocations=5, includeDoors=0", "params must be name=number,name=number"),
    ],
)
def test_wrong_parameters_are_one_line(params: str, said: str) -> None:
    with pytest.raises(SettingsError) as error:
        env_of(params=params).reset(seed=0)
    assert " ".join(said.split()) in str(error.value) and "\n" not in str(error.value)


def test_parameters_that_do_not_go_together_are_one_line() -> None:
    said = r"^textworld_express: mapreader: 'numLocations=5' cannot be played: .*No locations could be found[^\n]*$"
    with pytest.raises(SettingsError, match=said):
        for seed in range(60):
            game.TextGame(Name.MAPREADER, "numLocations=5").reset(seed=seed)


def test_valid_turns_are_those_that_the_game_takes() -> None:
    env = TextWorldExpressEnv(TextWorldExpressConfig(game=Name.COIN, params=SMALL[Name.COIN]))
    env.reset(seed=0)
    turns = env.valid_turns()
    assert turns and len(set(turns)) == len(turns)
    for turn in turns:
        env.reset(seed=0)
        *_, info = env.step(turn)
        assert not info["invalid"]
    env.reset(seed=0)
    *_, info = env.step(render("ACT", "fly away"))
    assert info["invalid"], "the control"
    env.close()
