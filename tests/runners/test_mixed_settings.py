"""Several environments in one run: their settings, the order of their tasks, and figures for each of them."""

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from agent_envs.identity.env import IdentityEnv
from agents.rollout.play import Played
from agents.tree import Kind, Node
from agents.tree.episode import Episode, Job
from agents.tree.merge import grow
from runners.command_line.errors import UserError
from runners.command_line.parse import parse
from runners.inference.evaluate_settings import Evaluate, envs_of
from runners.pretrain import PretrainProgram
from runners.served.settings import EvaluateServed
from runners.settings.run_settings import read_settings
from runners.settings.train_settings import Train
from runners.training.columns import COLUMNS, columns_of
from runners.training.evaluations import by_env, summary_of, validated
from runners.training.records import stats_by_env
from runners.training.report import Report
from runners.training.stream import MixedStream, TaskStream

TASKS = IdentityEnv().tasks("train")
BOTH = ("--env", "identity", "corridor")


# -- settings --------------------------------------------------------------------------------------------------------


def test_each_environment_has_its_own_flags() -> None:
    run = read_settings([*BOTH, "--mix", "2", "1", "--identity.length", "4", "--corridor.max-turns", "50"])
    assert run.env["identity"].length == 4 and run.env["corridor"].max_turns == 50
    assert run.train.shares == (2, 1) and run.play().envs == run.env
    with pytest.raises(UserError, match="unknown flag --corridor"):
        read_settings(["--env", "identity", "--corridor.max-turns", "50"])


def test_settings_come_back_from_their_file(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    for argv in (BOTH, (*BOTH, "--mix", "3", "1"), ("--env", "identity")):
        run = read_settings(argv)
        file.write_text(run.written(), "utf-8")
        again = read_settings(["--config", str(file)])
        assert again.env == run.env and again.train.shares == run.train.shares
        assert yaml.safe_load(again.written()) == yaml.safe_load(run.written())


def test_one_environment_is_written_as_before(tmp_path: Path) -> None:
    values = yaml.safe_load(read_settings(["--env", "identity"]).written())
    assert values["env"] == "identity" and "mix" not in values
    assert next(iter(values)) == "env" and values["identity"]["length"] == 3
    file = tmp_path / "old.yaml"
    file.write_text("env: identity\nidentity: {length: 5}\n", "utf-8")
    assert read_settings(["--config", str(file)]).env["identity"].length == 5
    assert yaml.safe_load(read_settings(BOTH).written())["mix"] == [1, 1]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--env", "wiki", "wiki"), "--env names wiki twice"),
        (("--env",), "--env needs the name"),
        (("--env", "wiki", "--mix", "1"), "--mix has no effect with one environment"),
        ((*BOTH, "--mix", "1"), "--mix needs one number for each of the 2 environments, not 1"),
        ((*BOTH, "--mix", "1", "0"), "--mix must hold whole numbers from 1 to 1000, not 0"),
        ((*BOTH, "--mix", "1", "0.5"), "--mix"),
        (("--env", "wiki", "--env", "wiki"), "--env names wiki twice"),
        (("--env", "identity", "nowhere"), "unknown environment 'nowhere'"),
    ],
)
def test_what_makes_no_sense_is_refused(argv: tuple[str, ...], says: str) -> None:
    with pytest.raises(UserError, match=says) as raised:
        read_settings(argv)
    assert "\n" not in str(raised.value)


def test_programs_for_one_environment_say_so() -> None:
    assert read_settings(["--env", "identity"]).only_env("credit")[0] == "identity"
    with pytest.raises(UserError, match="credit takes runs of one environment, and this one has identity and corridor"):
        read_settings(BOTH).only_env("credit")


def test_what_is_measured_when_nothing_is_named() -> None:
    assert envs_of(Evaluate(), None) == ("wiki",)
    assert envs_of(Evaluate(env=("math", "wiki")), None) == ("math", "wiki")


# -- the order of the tasks ------------------------------------------------------------------------------------------


def mixed(*shares: int, seed: int = 0) -> MixedStream:
    names = ("a", "b", "c", "d")[: len(shares)]
    return MixedStream(dict.fromkeys(names, TASKS), shares, seed)


@pytest.mark.parametrize("shares", [(1, 1), (2, 1), (1, 5), (3, 2), (7, 4)])
@pytest.mark.parametrize("tasks", [1, 5, 16, 33])
@pytest.mark.parametrize("seed", [0, 3])
def test_an_update_holds_each_environments_share(shares: tuple[int, int], tasks: int, seed: int) -> None:
    stream, whole = mixed(*shares, seed=seed), sum(shares)
    played: Counter[str] = Counter()
    for update in range(1, 2 * whole + 1):
        mine = Counter(next(stream)[0] for _ in range(tasks))
        played += mine
        for env, share in zip("ab", shares, strict=True):
            assert abs(mine[env] - tasks * share / whole) < 1
            assert abs(played[env] - update * tasks * share / whole) < 1, "what is left over is made up for"
    assert played["a"] * shares[1] == played["b"] * shares[0]


def test_an_order_that_ignores_the_shares_would_be_seen() -> None:
    stream = mixed(2, 1)
    stream.turns = ["a", "b"]
    mine = Counter(next(stream)[0] for _ in range(30))
    assert abs(mine["a"] - 20) >= 1


def test_the_remainder_goes_round_from_where_the_seed_says() -> None:
    def odd(seed: int) -> list[str]:
        stream = mixed(1, 1, seed=seed)
        updates = [Counter(next(stream)[0] for _ in range(3)) for _ in range(4)]
        return [update.most_common(1)[0][0] for update in updates]

    assert odd(0) == ["a", "b", "a", "b"] and odd(1) == ["b", "a", "b", "a"] and odd(2) == odd(0)


def test_more_environments_keep_their_shares() -> None:
    stream = mixed(4, 3, 2, 1)
    assert Counter(next(stream)[0] for _ in range(30)) == {"a": 12, "b": 9, "c": 6, "d": 3}


def test_each_environment_has_the_stream_that_it_has_alone() -> None:
    alone, stream = TaskStream(TASKS, 4), mixed(2, 1, seed=4)
    drawn = [next(stream) for _ in range(900)]
    for env in "ab":
        mine = [(task, visit) for name, task, visit in drawn if name == env]
        alone = TaskStream(TASKS, 4)
        assert mine == [next(alone) for _ in mine]


@pytest.mark.parametrize("before", [0, 1, 7, 400])
def test_a_mixed_stream_goes_on_from_its_state(before: int) -> None:
    whole = mixed(2, 1, seed=5)
    for _ in range(before):
        next(whole)
    state = json.loads(json.dumps(whole.state()))
    again, poor = mixed(2, 1, seed=5), mixed(2, 1, seed=5)
    again.load(state)
    poor.load(state | {"at": (state["at"] + 1) % 3})  # the place among the turns cannot be left out
    rest = [next(whole) for _ in range(300)]
    assert [next(again) for _ in range(300)] == rest
    assert [next(poor) for _ in range(300)] != rest


def test_the_state_of_one_environment_is_that_of_its_stream() -> None:
    stream, alone = mixed(1), TaskStream(TASKS, 0)
    assert [next(stream)[1:] for _ in range(200)] == [next(alone) for _ in range(200)]
    assert stream.state() == alone.state()
    again = mixed(1)
    again.load(alone.state())
    assert next(again)[1:] == next(alone)


# -- whose task it is ------------------------------------------------------------------------------------------------


def episode(env: str, success: bool, task: int = 0) -> Episode:
    root = Node(Kind.STATE, (1, 2))
    action = root.add(Node(Kind.ACTION, (3,), logp=(-1.0,), entropy=(0.5,), reward=float(success)))
    end = action.add(Node(Kind.STATE, (), terminated=True, success=success))
    return Episode(Job(TASKS[task], env=env), root, [(action, end)], [("x", "")])


def test_a_task_id_of_two_environments_is_two_tasks() -> None:
    ours, theirs = Job(TASKS[0], env="a"), Job(TASKS[0], env="b")
    assert ours.id != theirs.id and ours.id[0] == f"a/{TASKS[0].id}" and Job(TASKS[0]).id[0] == TASKS[0].id
    assert ours.seed("env") == Job(TASKS[0]).seed("env"), "an episode is drawn as in a run of its environment alone"
    assert len(grow([episode("a", True), episode("b", True)])) == 2
    assert len(grow([episode("a", True), episode("a", True)])) == 1


# -- figures ---------------------------------------------------------------------------------------------------------


def test_every_number_of_the_episodes_stands_for_each_environment() -> None:
    played = Played([episode("a", True), episode("a", False, 1), episode("b", True)])
    row = stats_by_env(played, 1)
    assert (row["a/success"], row["b/success"]) == (0.5, 1.0)
    assert {key.partition("/")[2] for key in row} >= {"success", "reward", "turns", "invalid", "faults"}
    assert stats_by_env(Played([episode("", True)]), 1) == {}


def entries() -> list[dict[str, Any]]:
    """Validation: the mean over the environments is best after update 4, that of each alone after others."""
    means = {2: (0.9, 0.1), 4: (0.7, 0.6), 6: (0.1, 0.9)}
    found = [
        {"update": update, "split": "valid", "mode": mode, "env": env, "mean": mean if mode == "sampled" else 1.0}
        for update, of_update in means.items()
        for env, mean in zip("ab", of_update, strict=True)
        for mode in ("sampled", "greedy")
    ]
    ends = {"mean": 0.5, "low": 0.4, "high": 0.6}
    return [
        {"update": 0, "split": "test", "mode": "sampled", "env": "a", **ends},
        *found,
        {"update": 8, "split": "test", "mode": "sampled", "env": "b", **ends, "mean": 0.55},
    ]


def test_the_best_update_is_that_of_the_mean_over_environments() -> None:
    found = validated(entries())
    assert found == pytest.approx({2: 0.5, 4: 0.65, 6: 0.5}) and max(found, key=lambda u: found[u]) == 4
    only = [{k: v for k, v in entry.items() if k != "env"} for entry in entries() if entry["env"] == "a"]
    assert validated(only) == pytest.approx({2: 0.9, 4: 0.7, 6: 0.1})


def test_the_summary_has_both_ends_of_each_environment() -> None:
    found = summary_of(entries(), ("a", "b"))
    assert found["envs"]["a"]["start"]["sampled"]["mean"] == 0.5 and found["envs"]["a"]["final"] == {}
    assert found["envs"]["b"]["final"]["sampled"] == {"mean": 0.55, "low": 0.4, "high": 0.6}
    assert by_env(found, ("a", "b")) == found["envs"]
    alone = [{k: v for k, v in entry.items() if k != "env"} for entry in entries() if entry["env"] == "a"]
    assert list(summary_of(alone, ("a",))) == ["start", "final"]
    assert by_env(summary_of(alone, ("a",)), ("a",)) == {"a": summary_of(alone, ("a",))}


def test_the_table_has_columns_for_each_environment(tmp_path: Path) -> None:
    assert columns_of(()) == COLUMNS
    screen = io.StringIO()
    with Report(tmp_path, 2, Console(file=screen, width=200), envs=("a", "b")) as report:
        report.evaluation(0, "valid", "sampled", {"mean": 0.5, "low": 0.4, "high": 0.6}, 1.0, "a")
        report.update(1, {"success": 0.5, "a/success": 0.25, "b/success": 0.75, "b/reward": 0.5, "env_steps": 3.0})
    said = screen.getvalue()
    assert "a success 0.250" in said and "b success 0.750, b reward 0.500" in said
    assert "evaluation after update 0, a, valid tasks, sampled" in said
    first = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0])
    assert first["env"] == "a"


@pytest.mark.parametrize("program", [Train, Evaluate, EvaluateServed, PretrainProgram])
@pytest.mark.parametrize("argv", ["--env wiki math", "--env wiki --env=math"])
def test_every_program_takes_several_environments_at_once_and_one_by_one(program: type, argv: str) -> None:
    """Where a second --env was not refused, it replaced the first."""
    assert parse(program, argv=argv.split())[0].env == ("wiki", "math")
