"""TURNWISE_BUDGET=small bounds the programs' settings, says so, and changes nothing else."""

from dataclasses import asdict

import pytest

from runners.command_line.errors import UserError
from runners.command_line.small_budget import SMALL, VARIABLE, bounded
from runners.settings.run_settings import read_settings

ARGV = ["--env", "identity", "--algo", "grpo", "--updates", "40", "--episodes", "256", "--pretrain.steps", "4000"]


def test_large_budgets_are_bounded_and_small_ones_stay(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    full = read_settings(ARGV)
    assert (full.train.updates, full.train.episodes, full.pretrain and full.pretrain.steps) == (40, 256, 4000)
    monkeypatch.setenv(VARIABLE, "small")
    small = read_settings([*ARGV, "--eval-tasks", "3", "--identity.max-turns", "200"])
    assert (small.train.updates, small.train.episodes, small.train.eval_tasks) == (2, 8, 3)
    assert small.pretrain is not None and small.pretrain.steps == SMALL["steps"]
    assert small.env["identity"].max_turns == 200, "an environment's settings are its own"
    bounds = {key for key, value in asdict(full.train).items() if value != getattr(small.train, key)}
    assert bounds == {"updates", "episodes", "minibatches", "eval_tasks", "test_tasks"}
    assert capsys.readouterr().out == "", "standard output may be JSON"


def test_it_is_said_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from runners.command_line import small_budget

    small_budget._say.cache_clear()
    monkeypatch.setenv(VARIABLE, "small")
    for _ in range(2):
        read_settings(ARGV)
    assert capsys.readouterr().err.count(f"{VARIABLE}=small: budgets are small") == 1


def test_another_budget_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "tiny")
    with pytest.raises(UserError, match="TURNWISE_BUDGET must be small or unset, not 'tiny'"):
        read_settings(ARGV)


def test_a_bound_that_breaks_other_settings_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from runners.crediting.settings import Credit

    monkeypatch.setenv(VARIABLE, "small")
    with pytest.raises(UserError, match=r"TURNWISE_BUDGET=small: episodes \(8\) must be at least one group of 64"):
        bounded(Credit(episodes=128, group=64))
