"""Faults in a run: they teach nothing, bit for bit, and enough of them end it in one line."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from faulty_cases import FAULTY, faulty_model
from run_cases import gradient, rows, same, training

from agent_envs.identity.env import IdentityEnv
from agents.engine import SamplingSettings
from agents.rollout.play import Played
from agents.tree.episode import Episode, Fault, Job
from agents.tree.merge import grow
from runners.command_line.errors import UserError
from runners.training.run import Training

pytestmark = pytest.mark.runs


@pytest.fixture(scope="module", autouse=True)
def model(tmp_path_factory: pytest.TempPathFactory, own_cache: None) -> Iterator[str]:
    """Folder of the cloned model, with the faulty environment registered."""
    with faulty_model(tmp_path_factory.mktemp("base")) as source:
        yield source


@pytest.mark.parametrize("algo", ["selfac", "grpo"])
def test_the_gradient_is_that_of_the_batch_without_the_faults(tmp_path: Path, model: str, algo: str) -> None:
    tasks = IdentityEnv().tasks("train")
    argv = ("--algo", algo, "--model", model, "--minibatches", "2", "--faults.retries", "0", "--faulty.tasks", "5")
    argv += ("--faults.max-rate", "1")  # faults end sooner than episodes do, so that the first to end may all be broken
    with training(tmp_path / "run", *argv, text=FAULTY) as run:
        group = 8 if algo == "grpo" else 1
        whole = [Job(tasks[i], g) for i in range(12) for g in range(group)]
        sound = [job for job in whole if int(job.task.id.rpartition("-")[2]) >= 5]
        run.controller.load(0, run.model.policy_state())
        mixed = run.controller.play(whole, SamplingSettings())
        clean = run.controller.play(sound, SamplingSettings())
        broken = [o for o in mixed.outcomes if isinstance(o, Fault)]
        assert len(broken) == 5 * group and clean.faults == []
        kinds = Counter(fault.kind.value for fault in broken)
        assert kinds == dict.fromkeys(("raised", "hung", "exited", "memory", "flooded"), group)
        without = gradient(run.learner, grow(clean.episodes, least=min(2, group)))
        assert same(gradient(run.learner, grow(mixed.episodes, least=min(2, group))), without)
        # As an outage is often booked, an episode with reward 0, it would teach something.
        booked = Played([o if isinstance(o, Episode) else as_failure(o, clean.episodes[0]) for o in mixed.outcomes])
        assert not same(gradient(run.learner, grow(booked.episodes, least=min(2, group))), without)


def as_failure(fault: Fault, like: Episode) -> Episode:
    from dataclasses import replace

    turns = [(replace(action, reward=0.0, children=[]), replace(state, success=False)) for action, state in like.turns]
    return Episode(fault.job, replace(like.root, children=[]), turns, like.texts, like.prompt)


def test_a_lone_survivor_of_a_group_is_left_out(tmp_path: Path, model: str) -> None:
    with training(tmp_path / "run", "--algo", "grpo", "--model", model, "--updates", "0", text=FAULTY) as run:
        run.controller.load(0, run.model.policy_state())
        jobs = [Job(IdentityEnv().tasks("train")[i], g) for i in range(2) for g in range(8)]
        played = run.controller.play(jobs, SamplingSettings())
    kept = [played.outcomes[0], *(fault(o) for o in played.outcomes[1:8]), *played.outcomes[8:]]
    assert [len(tree.paths) for tree in grow(Played(kept).episodes, least=2)] == [8]
    assert [len(tree.paths) for tree in grow(Played(kept).episodes)] == [1, 8]


def fault(outcome: Any) -> Fault:
    from agent_envs.isolation.faults import FaultKind, Stage

    return Fault(outcome.job, FaultKind.RAISED, Stage.STEP, "broken")


def test_too_many_faults_end_the_run_in_one_line(tmp_path: Path, model: str) -> None:
    argv = ("--model", model, "--faulty.every", "1", "--faulty.only", "raise", "--updates", "3")
    with training(tmp_path / "run", *argv, text=FAULTY) as run, pytest.raises(UserError) as ended:
        run.run()
    assert "the environment broke in" in str(ended.value) and "OSError: the disk is gone" in str(ended.value)
    assert "\n" not in str(ended.value) and "--faults.max-rate" in str(ended.value)


# -- numbers that are none -------------------------------------------------------------------------------------------


def poisoned(run: Training, steps: set[int]) -> list[int]:
    """Makes the gradient of some steps infinite; returns the list of steps taken so far."""
    step, seen = run.learner.step, []

    def poison(loss: torch.Tensor) -> tuple[float, bool]:
        if len(seen) in steps:
            run.model.policy_parameters()[0].grad[0] = float("nan")  # type: ignore[index]
        seen.append(len(seen))
        return step(loss)

    run.learner.step = poison  # type: ignore[method-assign]
    return seen


def test_a_step_without_a_number_is_skipped_and_counted(tmp_path: Path, model: str) -> None:
    argv = ("--model", model, "--updates", "2", "--minibatches", "4", "--episodes", "16")
    with training(tmp_path / "run", *argv, text=FAULTY) as run:
        seen = poisoned(run, {1, 2, 6})
        run.run()
        assert all(torch.isfinite(p).all() for p in run.model.policy_parameters())
        assert all(torch.isfinite(x).all() for x in run.learner.tensors().values())
    assert len(seen) == 8
    assert [row["skipped_steps"] for row in rows(tmp_path / "run")] == [2, 3]
    dropped = [json.loads(x) for x in (tmp_path / "run" / "ledger.jsonl").read_text().splitlines()]
    dropped = [line for line in dropped if line["event"] == "dropped"]
    assert len(dropped) == 12 and {line["reason"] for line in dropped} == {"the gradient was not finite"}


def test_several_in_a_row_end_the_run_in_one_line(tmp_path: Path, model: str) -> None:
    argv = ("--model", model, "--updates", "2", "--minibatches", "4", "--episodes", "16", "--max-skipped", "3")
    with training(tmp_path / "run", *argv, text=FAULTY) as run:
        before = run.model.adapter_state()
        poisoned(run, set(range(100)))
        with pytest.raises(UserError, match="not finite in 3 steps in a row: lower --lr"):
            run.run()
        assert all(torch.equal(x, before[name]) for name, x in run.model.adapter_state().items())
