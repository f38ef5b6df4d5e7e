"""Whole runs of several environments, one with actions and one with thoughts: recorded for each, the same bits after a
stop, with workers and for every algorithm that branches, and measured again from their folder."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from run_cases import fingerprint, rows, training
from test_resume import everything, finish, in_evaluation, in_rollout, in_update, stopped

from agent_envs import registry
from agent_envs.core import SettingsError
from agent_envs.math.env import MathEnv
from runners.command_line.errors import UserError
from runners.evaluation.measure import evaluate_tasks
from runners.evaluation.policies import load_policies
from runners.evaluation.tasks import pick_tasks
from runners.run_folder.runs import read_run
from runners.training.stream import MixedStream

pytestmark = [pytest.mark.usefixtures("own_cache"), pytest.mark.runs]
ENVS = ("identity", "math")
BOTH = """
env: [identity, math]
mix: [3, 2]
updates: 3
episodes: 8
minibatches: 2
eval_every: 2
eval_tasks: 4
test_tasks: 4
react: {max_action_tokens: 12, max_tokens: 160}
math: {max_turns: 4, min_steps: 1, max_steps: 1, languages: [en]}
envs: {processes: 1}
pretrain:
  {flaw: 0.5, demonstrations: 60, steps: 40, shape: {width: 64, mlp: 128}}
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, own_cache: None) -> Path:
    """A run that nothing stopped."""
    folder: Path = tmp_path_factory.mktemp("mixed") / "run"
    with training(folder, text=BOTH) as run:
        run.run()
    return folder


def lines(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def test_every_record_says_the_environment(whole: Path) -> None:
    updates = [row for row in lines(whole, "metrics") if row["kind"] == "update"]
    played = lines(whole, "episodes")
    for row in updates:
        mine = [e for e in played if e["update"] == row["update"]]
        counts = Counter(e["env"] for e in mine)
        assert abs(counts["identity"] - 4.8) < 1 and counts.total() == 8, "three to two, in every update"
        for env in ENVS:
            success = [e["success"] for e in mine if e["env"] == env]
            assert row[f"{env}/success"] == pytest.approx(sum(success) / len(success))
    measured = Counter((e["split"], e["env"]) for e in lines(whole, "metrics") if e["kind"] == "evaluation")
    # Before and after on test tasks, once in the middle on validation tasks; sampled and greedy.
    assert measured == {(split, env): n for env in ENVS for split, n in (("test", 4), ("valid", 2))}
    summary = json.loads((whole / "summary.json").read_text())
    assert {env: set(summary["envs"][env]["final"]) for env in ENVS} == {env: {"sampled", "greedy"} for env in ENVS}
    ids = {e[0].partition("/")[0] for event in lines(whole, "ledger") for e in event["episodes"]}
    assert ids == set(ENVS)
    assert {e["system"] for e in played if e["env"] == "identity"}.isdisjoint(
        e["system"] for e in played if e["env"] == "math"
    )


@pytest.mark.parametrize("place", [in_rollout(2), in_update(2), in_evaluation(2)], ids=["rollout", "update", "valid"])
def test_a_stopped_run_ends_like_one_that_was_not(tmp_path: Path, whole: Path, place: Any) -> None:
    folder = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("test_resume.LONGER", BOTH)
        stopped(folder, place)
    finish(folder)
    assert everything(folder) == everything(whole)


def test_a_run_that_forgets_whose_turn_it_is_ends_otherwise(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    monkeypatch.setattr("test_resume.LONGER", BOTH)
    stopped(folder, in_rollout(2))
    load = MixedStream.load
    monkeypatch.setattr(MixedStream, "load", lambda self, state: load(self, {**state, "at": self.at}))
    finish(folder)
    assert everything(folder) != everything(whole)


def test_workers_of_other_processes_play_the_same(tmp_path: Path, whole: Path) -> None:
    folder = tmp_path / "run"
    with training(folder, "--workers", "2", text=BOTH) as run:
        run.run()
    assert rows(folder) == rows(whole) and fingerprint(folder) == fingerprint(whole)
    assert (folder / "episodes.jsonl").read_text() == (whole / "episodes.jsonl").read_text()


SHORT = ("--updates", "1", "--eval-every", "0", "--test-tasks", "0")
BRANCHING = {
    "arpo": ("--algo", "arpo", "--arpo.group", "4", "--arpo.initial-rollouts", "2"),
    "grpo": ("--algo", "grpo", "--grpo.group", "4"),
    "tot": ("--agent", "tot", "--tot.branch", "2"),
}


@pytest.mark.parametrize("how", BRANCHING)
def test_groups_forks_and_searches_keep_to_their_environment(tmp_path: Path, how: str) -> None:
    with training(tmp_path / "run", *BRANCHING[how], *SHORT, text=BOTH) as run:
        run.run()
    played = lines(tmp_path / "run", "episodes")
    assert {e["env"] for e in played} == set(ENVS)
    systems: dict[str, set[str]] = {}
    for e in played:
        systems.setdefault(e["task"], set()).add(e["system"])
    assert all(len(found) == 1 for found in systems.values())
    if how != "tot":
        assert set(Counter((e["env"], e["task"]) for e in played).values()) == {4}


def test_a_policy_is_measured_on_each_environment_of_its_run(whole: Path) -> None:
    run, console = read_run(whole), Console(quiet=True)
    recorded = {
        (e["env"], e["mode"]): e["mean"]
        for e in lines(whole, "metrics")
        if e["kind"] == "evaluation" and e["update"] == 3
    }
    policies = load_policies(str(whole), run.settings.play(), console)
    with policies.playing() as controller:
        controller.load(0, policies.adapters["trained"])
        for name, env in registry.make_all(run.settings.env).items():
            tasks = pick_tasks(env, "test", 4)
            for mode, greedy in (("sampled", False), ("greedy", True)):
                sampling = run.train.sampling(greedy)
                found = evaluate_tasks(controller, sampling, tasks, console, seed=run.train.seed, env=name)
                assert found.success().mean == recorded[name, mode]


def test_what_one_environment_lacks_is_refused_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"--chat\.tools on: the environment math has no actions that could be tools"):
        training(tmp_path / "tools", "--chat.tools", "on", text=BOTH)
    monkeypatch.setattr(MathEnv, "oracle", lambda self: None)
    with pytest.raises(UserError, match=r"--react\.oracle needs an oracle, and the environment math has none"):
        training(tmp_path / "oracle", "--react.oracle", text=BOTH)
    monkeypatch.setattr(MathEnv, "has_expert", False)
    with pytest.raises(SettingsError, match="math has no scripted expert"):
        training(tmp_path / "expert", text=BOTH)
