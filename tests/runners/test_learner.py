"""What one update computes: corrections for an engine that disagrees, and how many forwards it takes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from run_cases import gradient, played, same, settings, training

from agents.compiled.threads import allowing
from agents.tree import Batch, Kind
from agents.tree.merge import Tree
from algorithms.formulas.mismatch import Correction
from algorithms.selfac import SelfAC, TurnCredit, TurnMoments
from runners.command_line.errors import UserError
from runners.settings.fitting import check_fit

pytestmark = pytest.mark.usefixtures("own_cache")


def shifted(trees: Sequence[Tree], by: float) -> None:
    """An engine that gives every sampled token exp(by) times the trainer's probability."""
    for tree in trees:
        for node in tree.root.walk():
            if node.kind is Kind.ACTION:
                node.logp = tuple(x + by for x in node.logp)


@pytest.mark.parametrize("algo", ["selfac", "grpo"])
def test_a_correction_weighs_what_the_engine_disagrees_in(tmp_path: Path, algo: str) -> None:
    with training(tmp_path / "run", "--algo", algo, "--old-logp", "trainer") as run:
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
        (("--masked", "counted"), "only works with correction token_mask or sequence_mask"),
        (("--algo", "grpo", "--grpo.discount", "0.5"), "--grpo.discount only works with baseline none"),
        (("--algo", "ppo", "--correction", "token_mask"), "ppo values every sampled token"),
    ],
)
def test_a_bound_without_effect_is_an_error(tmp_path: Path, argv: tuple[str, ...], said: str) -> None:
    with pytest.raises(UserError, match=said):
        check_fit(settings(tmp_path / "run", *argv))


@pytest.mark.parametrize("over", ["update", "minibatch"])
def test_a_minibatch_needs_a_forward_of_its_own_where_it_is_not_the_first(tmp_path: Path, over: str) -> None:
    """Two of the update, and the old numbers of the second minibatch, whatever is normalised together."""
    with training(tmp_path / "run", "--minibatches", "2", "--selfac.normalize-over", over) as run:
        trees, counters = played(run), run.model.counters
        before = counters.passes
        with allowing(1):  # of several threads, each would count the pass over its own rows
            run.learner.learn(2, trees)
        assert counters.passes - before == 3


def test_the_first_step_starts_from_the_first_forward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all minibatches are normalised together it comes before all others, and its graph is kept."""

    def learned(folder: str, kept: bool) -> tuple[list[torch.Tensor], dict[str, float]]:
        with training(tmp_path / folder, "--minibatches", "2", "--epochs", "2") as run:
            trees = played(run)
            with monkeypatch.context() as patch, allowing(1):
                if not kept:
                    patch.setattr(run.learner, "with_graph", lambda *_: [])
                before = run.model.counters.passes
                row = run.learner.learn(1, trees).row  # update 1 measures the divergence from the start in between
                assert run.model.counters.passes - before == 6 - kept + 1
            clock = {"seconds_forward", "seconds_update"}
            return list(run.model.adapter_state().values()), {k: v for k, v in row.items() if k not in clock}

    (mine, row), (twice, other) = learned("kept", True), learned("twice", False)
    assert same(mine, twice) and row == other


def test_an_update_is_normalised_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of three minibatches takes the moments of all turns that were played."""
    took: list[float] = []

    real = SelfAC.scaled

    def scaled(self: SelfAC, batch: Batch, credit: TurnCredit, over: TurnMoments) -> TurnCredit:
        took.append(float(over.adv[0].count))
        return real(self, batch, credit, over)

    monkeypatch.setattr(SelfAC, "scaled", scaled)
    with training(tmp_path / "run", "--minibatches", "3") as run:
        trees = played(run)
        run.learner.learn(2, trees)
        assert took == [sum(len(path) for tree in trees for _, path in tree.paths)] * 3
