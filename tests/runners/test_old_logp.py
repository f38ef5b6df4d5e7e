"""Where an update's old log-probabilities come from: the engine, at no cost, or a forward pass of the trainer."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from run_cases import fingerprint, gradient, played, rows, same, settings, training
from test_learner import shifted

from algorithms.formulas.mismatch import Correction
from runners.command_line.errors import UserError
from runners.run_folder.checkpoint import STATE, checkpoints
from runners.settings.fitting import check_fit
from runners.settings.old_logp import AGREE, OldLogp
from runners.training.run import Training

pytestmark = pytest.mark.usefixtures("own_cache")
GRPO = ("--algo", "grpo", "--minibatches", "2")


def learned(
    tmp_path: Path, how: str, shift: float = 0.0, *argv: str
) -> tuple[list[torch.Tensor], int, dict[str, float]]:
    """(policy after an update, its forward passes, its row) with an engine that is off by ``shift``."""
    with training(tmp_path / f"{how}{shift}", *GRPO, "--old-logp", how, *argv) as run:
        trees, counters = played(run), run.model.counters
        shifted(trees, shift)
        before = counters.passes
        row = run.learner.learn(2, trees).row
        return [p.detach().clone() for p in run.model.policy_parameters()], counters.passes - before, row


def close(ours: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(torch.allclose(a, b, atol=1e-4) for a, b in zip(ours, others, strict=True))


def test_the_engines_numbers_save_a_pass_and_teach_the_same(tmp_path: Path) -> None:
    engine, fewer, row = learned(tmp_path, "engine")
    trainer, more, own = learned(tmp_path, "trainer")
    assert (fewer, more) == (2, 3)  # two steps, and the old numbers of the second minibatch
    assert close(engine, trainer)
    assert row["old_logp_engine"] == 1 and "old_logp_engine" not in own
    assert row["mismatch_max_abs"] <= AGREE, "the first step measures how far the engine was off"


def test_an_engine_that_is_off_teaches_something_else(tmp_path: Path) -> None:
    """The control: the numbers are read."""
    engine, _, row = learned(tmp_path, "engine", -0.5)
    trainer, _, _ = learned(tmp_path, "trainer", -0.5)
    assert not close(engine, trainer)
    assert row["mismatch_max_abs"] == pytest.approx(0.5, abs=1e-3)


def test_auto_waits_for_a_measurement_and_goes_back_when_the_two_part(tmp_path: Path) -> None:
    with training(tmp_path / "run", *GRPO) as run:
        learner = run.learner
        trees = played(run)
        assert "old_logp_engine" not in learner.learn(1, trees).row and learner.starts_from_engine()
        shifted(trees, -0.5)
        row = learner.learn(2, trees).row
        assert "old_logp_engine" in row and row["mismatch_max_abs"] > AGREE
        assert not learner.starts_from_engine() and "old_logp_engine" not in learner.learn(3, trees).row


@pytest.mark.parametrize(
    "change",
    [{"top_p": 0.9}, {"top_k": 5}, {"correction": "token_truncate"}, {"old_logp": OldLogp.TRAINER}],
)
def test_auto_takes_the_trainers_where_they_need_not_be_the_same(tmp_path: Path, change: dict[str, object]) -> None:
    with training(tmp_path / "run", *GRPO) as run:
        run.learner.gap = 0.0
        assert run.learner.starts_from_engine()
        run.learner.train = replace(run.train, **{"workers": "1", **change})  # type: ignore[arg-type]
        assert not run.learner.starts_from_engine()


def test_a_critic_is_read_in_the_trainers_pass(tmp_path: Path) -> None:
    with training(tmp_path / "run", "--algo", "selfac") as run:
        run.learner.gap = 0.0
        assert not run.learner.starts_from_engine()
    with pytest.raises(UserError, match="selfac needs the trainer's forward"):
        check_fit(settings(tmp_path / "other", "--algo", "selfac", "--old-logp", "engine"))


def test_what_compares_the_two_does_not_work_with_the_engines_alone(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--old-logp engine takes the engine's numbers"):
        settings(tmp_path / "run", "--algo", "grpo", "--old-logp", "engine", "--correction", "token_mask")


STALE = ("--workers", "1", "--staleness", "1")


@pytest.mark.parametrize("algo", ["grpo", "selfac"])
def test_ratios_of_old_episodes_start_from_the_policy_that_played(tmp_path: Path, algo: str) -> None:
    """Every token was half as likely when it was played, so its ratio is 2: what paid is beyond the clip of 1.2."""
    with training(tmp_path / "run", "--algo", algo) as run:
        learner, trees = run.learner, played(run)
        learner.gap = None
        fresh = gradient(learner, trees)
        shifted(trees, -math.log(2))

        def old(**change: object) -> list[torch.Tensor]:
            learner.train = replace(run.train, workers="1", staleness=1, **change)  # type: ignore[arg-type]
            return gradient(learner, trees)

        assert learner.train.from_played is False and same(gradient(learner, trees), fresh)
        ours = old()
        assert learner.train.from_played and learner.starts_from_engine() is (algo == "grpo")
        assert not same(ours, fresh)
        assert same(old(old_logp=OldLogp.TRAINER), fresh) and not learner.train.from_played
        learner.train = replace(run.train, workers="1", staleness=1)
        row = learner.learn(2, trees).row
        assert row["clip_fraction"] > 0.2 and row["mismatch_max_abs"] == pytest.approx(math.log(2), abs=1e-3)


def test_what_learns_from_old_episodes_and_how(tmp_path: Path) -> None:
    def made(*argv: str) -> tuple[bool, Correction]:
        train = settings(tmp_path / "run", *STALE, *argv).train
        return train.from_played, train.correction

    assert made() == made("--old-logp", "engine") == made("--correction", "none") == (True, Correction.NONE)
    assert made("--old-logp", "trainer") == made("--top-p", "0.9") == (False, Correction.TOKEN_TRUNCATE)
    assert made("--old-logp", "trainer", "--correction", "none") == (False, Correction.NONE)
    assert made("--correction", "token_mask") == (False, Correction.TOKEN_MASK)
    settings(tmp_path / "run", *STALE, "--old-logp", "trainer", "--correction-high", "3")
    with pytest.raises(UserError, match="--correction-high only works with a correction"):
        settings(tmp_path / "run", *STALE, "--correction-high", "3")
    for argv in (("--algo", "pacs"), ("--algo", "selfac", "--old-logp", "engine")):
        check_fit(settings(tmp_path / "run", *STALE, *argv))
    unlike = (*STALE, "--algo", "pacs", "--pacs.reward-method", "mean_logp")
    with pytest.raises(UserError, match="has no ratio to the policy that played: add --old-logp trainer"):
        check_fit(settings(tmp_path / "run", *unlike))
    check_fit(settings(tmp_path / "run", *unlike, "--old-logp", "trainer"))


@pytest.mark.runs
def test_a_resumed_run_knows_what_was_measured(tmp_path: Path) -> None:
    argv = (*GRPO, "--test-tasks", "0", "--eval-every", "0")
    with training(tmp_path / "whole", *argv, "--updates", "4") as run:
        run.run()
    whole = rows(tmp_path / "whole")
    assert [("old_logp_engine" in row) for row in whole if row["kind"] == "update"] == [False, True, True, True]
    with training(tmp_path / "cut", *argv, "--updates", "4") as run:
        run.evaluate()
        for _ in range(2):
            run.next_update()
        run.save()
        gap = run.learner.gap
    last = checkpoints(tmp_path / "cut" / "checkpoints")[-1]
    assert json.loads((last / STATE).read_text())["learner"]["gap"] == gap is not None
    with Training(run.settings, tmp_path / "cut", run.console, resume=last) as again:
        again.run()
    assert fingerprint(tmp_path / "cut") == fingerprint(tmp_path / "whole")
