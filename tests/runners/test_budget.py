"""A run that ends after environment steps: counted once, resumed to the bit, its learning rate by the share used."""

import os
import signal
from pathlib import Path

import pytest
from run_cases import SMALL, fingerprint, rows, settings, training

from agent_envs.core import Task
from agents.tree import Kind, Node
from agents.tree.episode import Episode, Job
from runners.command_line.errors import UserError
from runners.train import begin
from runners.training.budget import Budget
from runners.training.interrupts import Stopped

pytestmark = pytest.mark.usefixtures("own_cache")
STEPS = 150  # three updates of 16 episodes with 3 to 5 turns: 48 to 80 a time


def episode(*turns: tuple[Node, Node]) -> Episode:
    return Episode(Job(Task("t", "train", "")), Node(Kind.STATE, (1,)), list(turns))


def turn(*tokens: int) -> tuple[Node, Node]:
    return Node(Kind.ACTION, tokens), Node(Kind.STATE, ())


def test_a_turn_that_branches_share_is_counted_once() -> None:
    budget, shared = Budget(updates=4, env_steps=10), turn(1, 2)
    budget.add([episode(shared, turn(3)), episode(shared, turn(4, 5, 6))])
    assert (budget.steps, budget.tokens) == (3, 6)
    budget.add([episode(turn(1, 2), turn(3)), episode(turn(1, 2), turn(3))])  # equal, and yet sampled twice
    assert (budget.steps, budget.tokens) == (7, 12)
    assert budget.used(1) == 0.7 and not budget.over(4)
    budget.add([episode(turn(1), turn(1), turn(1))])
    assert budget.over(1) and not Budget(updates=4).over(3) and Budget(updates=4).over(4)


def rates(folder: Path) -> tuple[list[float], list[float], int]:
    """Share of the peak learning rate in each update, the steps that were used up before it, and all steps."""
    found = []
    with training(folder, "--env-steps", str(STEPS), text=SMALL.replace("updates: 4", "updates: 1")) as run:
        step = run.learner.step
        seen: dict[int, float] = {}

        def watched(loss):  # type: ignore[no-untyped-def]
            seen[run.update] = run.learner.optimizer.param_groups[0]["lr"] / run.train.lr
            return step(loss)

        run.learner.step = watched  # type: ignore[method-assign]
        run.run()
        found = list(seen.values())
        total = run.budget.steps
    updates = [row for row in rows(folder) if row["kind"] == "update"]
    return found, [0.0, *(row["env_steps"] for row in updates[:-1])], total


@pytest.mark.runs
def test_the_run_ends_with_the_update_that_uses_up_the_budget(tmp_path: Path) -> None:
    shares, before, total = rates(tmp_path / "run")
    entries = rows(tmp_path / "run")
    updates = [row for row in entries if row["kind"] == "update"]
    assert len(updates) > 1, "the updates of the settings file do not decide"
    assert updates[-2]["env_steps"] < STEPS <= updates[-1]["env_steps"] == total
    assert updates[-1]["env_steps"] == round(sum(row["turns"] * 16 for row in updates))
    assert entries[-1]["split"] == "test" and entries[-1]["update"] == len(updates)
    assert shares == pytest.approx([max(0.1, 1 - steps / STEPS) for steps in before])


@pytest.mark.runs
def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    argv = ("--env-steps", str(STEPS))
    with training(tmp_path / "whole", *argv) as run:
        run.run()
    with pytest.raises(Stopped), training(tmp_path / "parts", *argv) as run:
        account = run.account

        def stop(*told):  # type: ignore[no-untyped-def]
            os.kill(os.getpid(), signal.SIGTERM)
            return account(*told)

        run.account = stop  # type: ignore[method-assign]
        run.run()
    assert len([row for row in rows(tmp_path / "parts") if row["kind"] == "update"]) == 1
    with begin(["--resume", str(tmp_path / "parts")], run.console) as run:
        run.run()
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")
    assert fingerprint(tmp_path / "parts") == fingerprint(tmp_path / "whole")


def test_a_negative_budget_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--env-steps must be at least 0"):
        settings(tmp_path / "run", "--env-steps", "-1", text=SMALL)


def test_settings_that_would_not_act_are_refused(tmp_path: Path) -> None:
    for flags, said in (
        (("--env-steps", "100", "--updates", "3"), "--updates does not act with --env-steps"),
        (("--updates", "3", "--env-steps", "100"), "--updates does not act with --env-steps"),
        (("--eval-every", "0", "--eval-tasks", "8"), "--eval-tasks does not act with --eval-every 0"),
        (("--eval-tasks", "8"), "--eval-tasks does not act"),
    ):
        text = SMALL.replace("eval_every: 2", "eval_every: 0") if len(flags) == 2 else SMALL
        with pytest.raises(UserError, match=said):
            settings(tmp_path / "run", *flags, text=text)
    for flags in (("--env-steps", "0", "--updates", "3"), ("--env-steps", "9"), ("--eval-every", "0")):
        settings(tmp_path / "run", *flags, text=SMALL)
    written = settings(tmp_path / "run", "--env-steps", "9").written()
    assert settings(tmp_path / "again", text=written).train.env_steps == 9, "the settings file of a run is read back"
