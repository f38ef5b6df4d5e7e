"""A step that moves the policy too far is taken back: what is measured, what stays, and what is said of it."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from run_cases import played, rows, settings, training

from algorithms.formulas.policy_loss import policy_moved
from runners.command_line.errors import UserError

pytestmark = pytest.mark.usefixtures("own_cache")

FOUR = ("--minibatches", "4", "--lr", "1e-2")


def learned(folder: Path, *argv: str, updates: int = 1) -> tuple[list[torch.Tensor], dict[str, float], dict[Any, str]]:
    """(policy, numbers of the last update, what it did not learn from)."""
    with training(folder, *FOUR, *argv) as run:
        trees = played(run)
        for update in range(1, updates + 1):
            result = run.learner.learn(update, trees)
        return [p.detach().clone() for p in run.model.policy_parameters()], result.row, result.untrained


def same(ours: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(ours, others, strict=True))


GRPO = ("grpo", "--grpo.group", "4")


@pytest.mark.parametrize("algo", [("selfac",), GRPO, ("turn_ppo",), ("ppo",)])
def test_the_measure_is_that_of_the_minibatches_before_their_steps(tmp_path: Path, algo: tuple[str, ...]) -> None:
    with training(tmp_path / "run", *FOUR, "--algo", *algo) as run:
        learner, seen = run.learner, []
        step = learner.step

        def noted(loss: torch.Tensor) -> tuple[float, bool]:
            by_hand = []
            for piece in pieces:
                new = learner.forward(run.model, piece.batch, learner.budget).logp_T.double()
                taken_T = piece.batch.action_T >= 0
                log_ratio = (new - piece.batch.old_logp_T)[taken_T]
                episodes = piece.batch.count_A[piece.batch.action_T[taken_T]]
                by_hand.append(float((log_ratio.exp() - 1 - log_ratio).repeat_interleave(episodes).mean()))
            seen.append(by_hand[len(seen)])
            return step(loss)

        packed, pieces = learner.packed, []

        def kept(trees: Any) -> Any:
            pieces.append(packed(trees))
            return pieces[-1]

        learner.packed, learner.step = kept, noted  # type: ignore[method-assign]
        row = learner.learn(1, played(run)).row
    assert len(seen) == 4 and seen[0] < 1e-9 < max(seen)
    assert row["approx_kl"] == pytest.approx(max(seen), rel=1e-3)


def test_a_bound_that_is_not_reached_changes_nothing(tmp_path: Path) -> None:
    free, row, none = learned(tmp_path / "free")
    assert row["approx_kl"] > 1e-5 and "left_out_steps" not in row and not none
    wide, wide_row, _ = learned(tmp_path / "wide", "--max-kl", "1000")
    assert same(free, wide) and wide_row["left_out_steps"] == 0
    assert wide_row["approx_kl"] >= row["approx_kl"], "what the last step does is measured, too"


@pytest.mark.parametrize("steps", [(), ("--epochs", "3"), ("--minibatches", "1")])
def test_where_every_step_goes_too_far_nothing_changes(tmp_path: Path, steps: tuple[str, ...]) -> None:
    with training(tmp_path / "run", *FOUR, "--max-kl", "1e-12", *steps) as run:
        start = {name: x.clone() for name, x in run.model.policy_state().items()}
        result = run.learner.learn(1, played(run))
        assert all(torch.equal(x, start[name]) for name, x in run.model.policy_state().items())
        assert not run.learner.tensors(), "no moments of a step that was taken back"
    assert result.row["left_out_steps"] == (1 if "--minibatches" in steps else 12 if steps else 4)
    assert len(result.untrained) == 16
    assert set(result.untrained.values()) == {"the update had moved the policy beyond max_kl"}


def test_only_the_step_that_goes_too_far_is_taken_back(tmp_path: Path) -> None:
    """The bound lies between what two steps did and what three do: the third is undone, as if two had been all."""
    with training(tmp_path / "look", *FOUR) as run:
        learner, trees, moved = run.learner, played(run), []
        learner.learn(1, trees)
        take_steps = learner.take_steps

        def noted(*args: Any) -> Any:
            moved.extend((result := take_steps(*args))[1])
            return result

        learner.take_steps = noted  # type: ignore[method-assign]
        learner.learn(2, trees)
    bound = (moved[2] + moved[3]) / 2
    assert max(moved[:3]) < bound < moved[3], "otherwise this tests something else"

    with training(tmp_path / "bounded", *FOUR) as run:
        run.learner.learn(1, trees)
        run.learner.train = replace(run.train, max_kl=bound)
        result = run.learner.learn(2, trees)
        ours = [p.detach().clone() for p in run.model.policy_parameters()]
        counts = {int(x) for name, x in run.learner.tensors().items() if name.endswith(".step")}
    assert result.row["left_out_steps"] == 2 and len(result.untrained) == 8
    assert counts == {6}, "four steps of the first update and two of the second"

    with training(tmp_path / "two", *FOUR) as run:
        run.learner.learn(1, trees)
        step, seen = run.learner.step, []

        def first_two(loss: torch.Tensor) -> tuple[float, bool]:
            seen.append(loss)
            if len(seen) <= 2:
                return step(loss)
            run.learner.optimizer.zero_grad()
            return 0.0, False

        run.learner.step = first_two  # type: ignore[method-assign]
        run.learner.learn(2, trees)
        assert same(ours, run.model.policy_parameters())


def test_a_step_that_is_not_finite_is_not_left_out_by_the_bound(tmp_path: Path) -> None:
    with training(tmp_path / "run", *FOUR, "--max-kl", "1000") as run:
        step = run.learner.step

        def poisoned(loss: torch.Tensor) -> tuple[float, bool]:
            run.model.policy_parameters()[0].grad[0] = float("nan")  # type: ignore[index]
            return step(loss)

        run.learner.step = poisoned  # type: ignore[method-assign]
        result = run.learner.learn(1, played(run))
    assert result.row["skipped_steps"] == 4 and result.row["left_out_steps"] == 0
    assert set(result.untrained.values()) == {"the gradient was not finite"}


@pytest.mark.parametrize("algo", [GRPO, ("selfac", "--replay-steps", "3", "--replay-updates", "2")])
def test_what_was_left_out_is_not_replayed(tmp_path: Path, algo: tuple[str, ...]) -> None:
    with training(tmp_path / "run", *FOUR, "--max-kl", "1e-12", "--algo", *algo) as run:
        trees = played(run)
        row = [run.learner.learn(update, trees).row for update in (1, 2, 3)][-1]
        held = [] if run.learner.replay is None else [len(kept) for kept in run.learner.replay.kept.values()]
    assert row["left_out_steps"] == 4
    assert held == ([2, 2] if "selfac" in algo else []), "the step that was taken back, and the one that showed it"


@pytest.mark.runs
def test_the_ledger_names_the_reason(tmp_path: Path) -> None:
    argv = (*FOUR, "--max-kl", "1e-4", "--replay-steps", "2", "--updates", "3", "--save-every", "1")
    with training(tmp_path / "whole", *argv) as run:
        run.run()
    lines = [json.loads(line) for line in (tmp_path / "whole" / "ledger.jsonl").read_text().splitlines()]
    dropped = [line for line in lines if line["event"] == "dropped"]
    assert sum(row.get("left_out_steps", 0) for row in rows(tmp_path / "whole")) * 4 == len(dropped) > 0
    assert {line["reason"] for line in dropped} == {"the update had moved the policy beyond max_kl"}


def test_moved_is_nothing_where_nothing_moved_and_not_a_number_where_that_is_so(tmp_path: Path) -> None:
    with training(tmp_path / "run") as run:
        batch = run.learner.packed(played(run)).batch
        assert policy_moved(batch, batch.old_logp_T) == 0
        shifted = batch.old_logp_T + math.log(2) * (batch.action_T >= 0)
        assert policy_moved(batch, shifted) == pytest.approx(1 - math.log(2), rel=1e-6)
        assert math.isnan(policy_moved(batch, shifted + math.nan))


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--max-kl", "0"), "--max-kl must be above 0, not 0.0"),
        (("--max-kl", "nan"), "--max-kl must be above 0, not nan"),
        (("--max-kl", "0.1", "--workers", "1", "--staleness", "1"), "--max-kl does not work with staleness"),
    ],
)
def test_a_bound_that_cannot_work_is_refused(tmp_path: Path, argv: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        settings(tmp_path / "run", *argv)
    stale = ("--workers", "1", "--staleness", "1", "--old-logp", "trainer")
    settings(tmp_path / "run", "--max-kl", "0.1", *stale)
