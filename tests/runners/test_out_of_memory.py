"""A run whose device runs out of memory: it says so, goes on with fewer tokens a pass, and resumes with them."""

from pathlib import Path

import pytest
import torch
from rich.console import Console
from run_cases import gradient, played, training

from agents.text.errors import ModelError
from agents.tree import Batch, Forward
from runners.command_line.errors import UserError
from runners.settings.run_settings import read_settings
from runners.settings.train_settings import Train
from runners.training.advice import Advisor
from runners.training.run import Training

pytestmark = pytest.mark.usefixtures("own_cache")


def shrink(run: Training, most: int) -> None:
    """Gives the model a device on which no pass of more tokens fits."""
    forward = run.model.forward

    def bounded(batch: Batch) -> Forward:
        if len(batch) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(batch)

    run.model.forward = bounded  # type: ignore[method-assign]


@pytest.mark.parametrize("algo", ["selfac", "ppo"])
def test_the_gradient_is_the_same_and_the_row_says_so(tmp_path: Path, algo: str) -> None:
    with training(tmp_path / "run", "--algo", algo) as run:
        learner, trees = run.learner, played(run)
        whole = gradient(learner, trees)
        shrink(run, 260)
        ours = gradient(learner, trees)
        largest = max(float(g.abs().max()) for g in whole)
        assert all((a - b).abs().max() <= 1e-4 * largest for a, b in zip(ours, whole, strict=True))
        row = learner.learn(2, trees).row
        assert row["out_of_memory"] == learner.budget.halved > 0
        assert row["token_budget"] == learner.budget.tokens < run.train.token_budget
        kept = learner.counters()
    with training(tmp_path / "again", "--algo", algo) as again:
        assert again.learner.budget.tokens == again.train.token_budget
        again.learner.load_counters(kept)
        assert again.learner.budget == learner.budget
        again.learner.load_counters({"skipped": 0, "skipped_in_a_row": 0})  # of an older run


def test_it_is_said_once_for_each_budget(capsys: pytest.CaptureFixture[str]) -> None:
    advisor = Advisor(Train(), Console(width=300))
    row = {"turns": 1.0, "invalid": 0.0, "success": 0.5, "reward_std": 1.0, "seconds_env": 0.0, "seconds_rollout": 1.0}
    for budget, halved in ((16384, 0), (8192, 1), (8192, 1), (4096, 2)):
        advisor.look_at(row | {"token_budget": float(budget), "out_of_memory": float(halved)})
    said = capsys.readouterr().out
    assert said.count("memory ran out") == 2
    assert "from now on 8192 tokens a pass" in said and "--token-budget 4096" in said


def test_an_attention_that_is_impossible_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="--attention flex: FlexAttention trains on CUDA only"):
        training(tmp_path / "run", "--attention", "flex", "--device", "cpu")
    with pytest.raises(UserError, match="attention"):
        read_settings(["--attention", "dense"])
    assert read_settings([]).train.attention == "auto"
