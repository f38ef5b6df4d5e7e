"""An update ends where the policy has moved far enough: what is measured, what is left out, and what is said of it."""

import json
import math
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


def test_a_bound_leaves_out_what_comes_after_it(tmp_path: Path) -> None:
    free, row, none = learned(tmp_path / "free")
    assert row["approx_kl"] > 1e-5 and "left_out_steps" not in row and not none
    wide, wide_row, _ = learned(tmp_path / "wide", "--target-kl", "1000")
    assert same(free, wide) and wide_row["left_out_steps"] == 0, "a bound that is not reached changes nothing"
    tight, tight_row, missing = learned(tmp_path / "tight", "--target-kl", "1e-12")
    assert tight_row["left_out_steps"] == 3 and len(missing) == 12 and not same(free, tight)
    assert set(missing.values()) == {"the update had moved the policy beyond target_kl"}
    one, _, _ = learned(tmp_path / "one", "--target-kl", "1e-12", "--epochs", "3")
    assert same(tight, one), "the first step is always taken, and nothing after it"


@pytest.mark.parametrize("algo", [GRPO, ("selfac", "--replay-steps", "3", "--replay-updates", "2")])
def test_what_was_left_out_is_not_replayed(tmp_path: Path, algo: tuple[str, ...]) -> None:
    with training(tmp_path / "run", *FOUR, "--target-kl", "1e-12", "--algo", *algo) as run:
        trees = played(run)
        row = [run.learner.learn(update, trees).row for update in (1, 2, 3)][-1]
        held = [] if run.learner.replay is None else [len(kept) for kept in run.learner.replay.kept.values()]
    assert row["left_out_steps"] == 3
    assert held == ([2, 2] if "selfac" in algo else []), "the one step of an update, and the one that was refused"


@pytest.mark.runs
def test_the_ledger_names_the_reason(tmp_path: Path) -> None:
    argv = (*FOUR, "--target-kl", "1e-4", "--replay-steps", "2", "--updates", "3", "--save-every", "1")
    with training(tmp_path / "whole", *argv) as run:
        run.run()
    lines = [json.loads(line) for line in (tmp_path / "whole" / "ledger.jsonl").read_text().splitlines()]
    dropped = [line for line in lines if line["event"] == "dropped"]
    assert sum(row.get("left_out_steps", 0) for row in rows(tmp_path / "whole")) * 4 == len(dropped) > 0
    assert {line["reason"] for line in dropped} == {"the update had moved the policy beyond target_kl"}


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
        (("--target-kl", "0"), "--target-kl must be above 0, not 0.0"),
        (("--target-kl", "nan"), "--target-kl must be above 0, not nan"),
        (("--target-kl", "0.1", "--minibatches", "1"), "--target-kl only works with several steps an update"),
    ],
)
def test_a_bound_that_cannot_work_is_refused(tmp_path: Path, argv: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        settings(tmp_path / "run", *argv)
    settings(tmp_path / "run", "--target-kl", "0.1", "--minibatches", "1", "--epochs", "2")
