"""What one update computes: corrections for an engine that disagrees, and how many forwards it takes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from run_cases import gradient, same, settings, training

from agents.engine import SamplingSettings
from agents.tree import Kind
from agents.tree.merge import Tree, grow
from algorithms.formulas.mismatch import Correction
from runners.command_line.errors import UserError
from runners.training.run import Training

pytestmark = pytest.mark.usefixtures("own_cache")


def played(run: Training) -> list[Tree]:
    run.controller.load(0, run.model.policy_state())
    return grow(run.controller.play(run.jobs(), SamplingSettings()).episodes)


def shifted(trees: Sequence[Tree], by: float) -> None:
    """An engine that gives every sampled token exp(by) times the trainer's probability."""
    for tree in trees:
        for node in tree.root.walk():
            if node.kind is Kind.ACTION:
                node.logp = tuple(x + by for x in node.logp)


@pytest.mark.parametrize("algo", ["selfac", "grpo"])
def test_a_correction_weighs_what_the_engine_disagrees_in(tmp_path: Path, algo: str) -> None:
    with training(tmp_path / "run", "--algo", algo) as run:
        learner, trees = run.learner, played(run)
        plain = gradient(learner, trees)

        def corrected(how: Correction) -> list[torch.Tensor]:
            learner.train = replace(run.train, correction=how, correction_high=1.5)
            return gradient(learner, trees)

        agreeing = corrected(Correction.TOKEN_TRUNCATE)
        assert all(torch.allclose(a, b, rtol=1e-3, atol=1e-7) for a, b in zip(agreeing, plain, strict=True))
        shifted(trees, -1.0)  # every ratio is e: truncated to 1.5, or masked
        learner.train = run.train
        assert same(gradient(learner, trees), plain), "without a correction the engine's numbers teach nothing"
        policy = len(run.model.policy_parameters())
        for ours, uncorrected in zip(corrected(Correction.TOKEN_TRUNCATE)[:policy], plain[:policy], strict=True):
            if algo == "grpo":  # its gradient is all policy
                assert torch.allclose(ours, 1.5 * uncorrected, rtol=1e-3, atol=1e-7)
        masked = corrected(Correction.TOKEN_MASK) if algo == "selfac" else None  # GRPO's would be all zeros
        assert masked is None or not same(masked, plain)
        row = learner.learn(1, trees).row
        assert row["mismatch_max_abs"] == pytest.approx(1, abs=1e-3) and row["mismatch_outside"] == 1
        assert row["mismatch_k1"] == pytest.approx(-1, abs=1e-3)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--correction-low", "0.5"), "only works with correction token_mask or sequence_mask"),
        (("--correction-high", "3"), "only works with a correction"),
        (("--correction", "token_truncate", "--correction-high", "0.5"), "correction_high above 1"),
    ],
)
def test_a_bound_without_effect_is_an_error(tmp_path: Path, argv: tuple[str, ...], said: str) -> None:
    with pytest.raises(UserError, match=said):
        settings(tmp_path / "run", *argv)


def test_the_first_minibatch_needs_no_forward_of_its_own(tmp_path: Path) -> None:
    with training(tmp_path / "run", "--minibatches", "2") as run:
        trees, counters = played(run), run.model.counters
        before = counters.passes
        run.learner.learn(2, trees)
        assert counters.passes - before == 3  # two of the update, and the old numbers of the second minibatch
