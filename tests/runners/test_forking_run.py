"""Whole runs whose episodes fork: the same bits after a stop and with workers, and every episode accounted for."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from run_cases import SMALL, rows, training
from test_resume import everything, finish, in_rollout, in_update, stopped

from agent_envs import registry
from agent_envs.identity.env import IdentityEnv
from agents.tree import Kind, Node
from agents.tree.episode import Episode, Job
from runners.command_line.errors import UserError
from runners.training.budget import Budget
from runners.training.records import group_costs

HERE = Path(__file__).resolve().parents[2]
ARPO = ("--algo", "arpo", "--arpo.group", "8", "--arpo.initial-rollouts", "3", "--arpo.lookahead", "3")
COSTS = ("forks", "shared_tokens", "calls_per_task", "sampled_tokens_per_task", "entropy_rise_10", "entropy_rise_50")

pytestmark = [pytest.mark.usefixtures("own_cache"), pytest.mark.runs]


def records(folder: Path, name: str = "episodes") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, own_cache: None) -> Path:
    folder: Path = tmp_path_factory.mktemp("whole") / "run"
    with training(folder, *ARPO, "--episodes", "32", text=SMALL.replace("updates: 4", "updates: 6")) as run:
        run.run()
    return folder


@pytest.mark.parametrize("place", [in_rollout(3), in_update(2)], ids=["rollout", "update"])
def test_a_stopped_run_ends_like_one_that_was_not(tmp_path: Path, whole: Path, place: Any) -> None:
    folder = tmp_path / "run"
    stopped(folder, place, *ARPO)
    finish(folder)
    assert everything(folder) == everything(whole)


@pytest.mark.parametrize("slots", [8, 20])
def test_workers_play_the_same_run(tmp_path: Path, whole: Path, slots: int) -> None:
    argv = (*ARPO, "--episodes", "32", "--updates", "2", "--slots", str(slots))
    for count in ("0", "2"):
        with training(tmp_path / count, *argv, "--workers", count) as run:
            run.run()
    assert records(tmp_path / "0") == records(tmp_path / "2") and rows(tmp_path / "0") == rows(tmp_path / "2")
    said = [[t["action"] for t in e["turns"]] for e in records(tmp_path / "0") if e["update"] == 1]
    assert said == [[t["action"] for t in e["turns"]] for e in records(whole) if e["update"] == 1]


def test_what_is_recorded(whole: Path) -> None:
    updates = [row for row in rows(whole) if row["kind"] == "update"]
    found = records(whole)
    for row in updates:
        assert all(name in row for name in COSTS) and row["forks"] > 0 and 0 < row["shared_tokens"] < 1
        mine = [e for e in found if e["update"] == row["update"]]
        assert sum("forked_from" in e for e in mine) == row["forks"]
        assert Counter(e["task"] for e in mine) == dict.fromkeys({e["task"] for e in mine}, 8)
        assert row["mismatch_max_abs"] < 1e-4, "engine and trainer agree on what forks share, too"
        own = [turn for e in mine for turn in e["turns"][e.get("inherited", 0) :]]
        assert row["sampled_tokens_per_task"] == sum(len(turn["tokens"]) for turn in own) / 4
        assert row["calls_per_task"] == sum(not turn["terminated"] for turn in own) / 4
    assert updates[-1]["env_steps"] == sum(len(e["turns"]) - e.get("inherited", 0) for e in found)
    of = {(e["update"], e["task"], e["sample"]): e for e in found}
    for e in found:
        if "forked_from" in e:
            source = of[e["update"], e["task"], e["forked_from"]]
            assert [t["tokens"] for t in source["turns"][: e["inherited"]]] == [
                t["tokens"] for t in e["turns"][: e["inherited"]]
            ]


# -- faults ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def faulty() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry.ENVS, "faulty", "faulty_env:FaultyEnv")
        yield


def test_broken_environments_are_accounted_for(tmp_path: Path, whole: Path, faulty: None) -> None:
    source = json.loads((whole / "base.json").read_text())["source"]
    text = "\n".join(line for line in SMALL.splitlines() if "{flaw" not in line and "pretrain" not in line)
    folder, options = tmp_path / "run", ("--env", "faulty", "--model", source, "--faulty.every", "6")
    with training(folder, *ARPO, *options, "--episodes", "32", "--test-tasks", "0", text=text) as run:
        run.run()
    ledger = records(folder, "ledger")
    count = {event: Counter() for event in ("dispatched", "trained", "dropped")}
    for line in ledger:
        count[line["event"]].update(tuple(e) for e in line["episodes"])
    assert count["dispatched"] == count["trained"] + count["dropped"] and count["dropped"]
    assert max(count["dispatched"].values()) == 1
    played = {(e["task"], e["sample"]) for e in records(folder)}
    assert len(played) == 4 * 32, "every number of every task came to an end"
    assert all(row["faults"] > 0 for row in rows(folder) if row["kind"] == "update")


# -- one clear line --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--arpo.initial-rollouts", "9"), r"--arpo.initial-rollouts must lie in 1\.\.8"),
        (("--slots", "7"), r"--slots 7 must hold the 8 episodes of a task, which fork: raise it"),
        (("--episodes", "12"), "--episodes 12 must be a multiple of the group of 8"),
    ],
)
def test_bad_settings_are_said_before_anything_is_made(tmp_path: Path, argv: tuple[str, ...], says: str) -> None:
    with pytest.raises(UserError, match=says):
        training(tmp_path / "run", *ARPO, *argv)


def test_the_program_trains_the_wiki(tmp_path: Path) -> None:
    """As a person starts it; the tiny model of this test is hardly trained, so that it takes seconds."""
    sizes = ["--wiki.train-worlds", "8", "--wiki.valid-worlds", "4", "--wiki.test-worlds", "4"]
    clone = ["--pretrain.demonstrations", "60", "--pretrain.steps", "20"]
    clone += ["--pretrain.shape.width", "48", "--pretrain.shape.mlp", "64"]
    run = ["--updates", "2", "--episodes", "16", "--minibatches", "1", "--eval-every", "0", "--test-tasks", "0"]
    out = tmp_path / "run"
    program = [sys.executable, str(HERE / "runners" / "train.py"), "--env", "wiki", "--out", str(out)]
    done = subprocess.run([*program, *ARPO, *sizes, *clone, *run], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    updates = [row for row in rows(out) if row["kind"] == "update"]
    assert [row["update"] for row in updates] == [1, 2] and all(row["forks"] > 0 for row in updates)


# -- the costs alone -------------------------------------------------------------------------------------------------


def episode(sample: int, *entropies: tuple[float, ...], inherited: int = 0) -> Episode:
    task = IdentityEnv().tasks("train")[0]
    found = Episode(Job(task, sample), Node(Kind.STATE, (1,)), inherited=inherited)
    found.forked_from = 0 if inherited else None
    for entropy in entropies:
        action = Node(Kind.ACTION, (5,) * len(entropy), entropy=entropy)
        found.turns.append((action, Node(Kind.STATE, (6,))))
    found.end.terminated = True
    return found


def test_costs_count_what_was_taken_over_once() -> None:
    one = episode(0, (1.0, 1.0), (2.0,) * 20, (4.0,))
    two = episode(1, (1.0, 1.0), (6.0, 6.0, 6.0), inherited=1)
    costs = group_costs([one, two])
    assert costs == {
        "forks": 1.0,
        "shared_tokens": pytest.approx(2 / 28),
        "calls_per_task": 2.0,
        "sampled_tokens_per_task": 26.0,
        "entropy_rise_10": pytest.approx((10 * 2 + 4 + 18) / 14),
        "entropy_rise_20": pytest.approx((20 * 2 + 4 + 18) / 24),
        "entropy_rise_50": pytest.approx((20 * 2 + 4 + 18) / 24),
    }
    budget = Budget(updates=1)
    budget.add([one, two])
    assert (budget.steps, budget.tokens) == (4, 26)
    assert group_costs([episode(0, (0.0,))]).keys() == costs.keys() - {f"entropy_rise_{k}" for k in (10, 20, 50)}
