"""Both algorithms solve the identity environment in seconds, by the very program that people start."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from agents.engine import SamplingSettings
from agents.tree import Kind
from algorithms import ALGORITHMS
from runners.config import parse
from runners.measure import evaluate_tasks, pick_tasks
from runners.settings import Train, parts_of
from runners.train import Training

# A demonstrator that is wrong in half of the turns, cloned in a few seconds.
SETTINGS = """
env: identity
updates: 48
episodes: 96
minibatches: 6
lr: 3e-3
eval_every: 0
test_tasks: 0
react: {max_action_tokens: 16, max_tokens: 256}
pretrain:
  {flaw: 0.5, demonstrations: 300, steps: 400, shape: {width: 64, mlp: 128}}
"""
TIMES = {"seconds", "seconds_rollout", "seconds_env", "seconds_forward", "seconds_update", "sampled_tokens_per_s"}


@pytest.fixture(scope="module", autouse=True)
def _one_thread_and_a_cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWISE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
    torch.set_num_threads(threads)


def training(folder: Path, algo: str, *argv: str) -> Training:
    folder.mkdir(exist_ok=True)
    (folder / "settings.yaml").write_text(SETTINGS)
    train, parts = parse(Train, parts_of, ["--config", str(folder / "settings.yaml"), "--algo", algo, *argv], about="")
    return Training(train, parts, folder, Console(file=io.StringIO()))


def success(run: Training, *, greedy: bool = False) -> float:
    """Mean success on every test task, twelve samples each."""
    run.engine.load(run.engine.version + 1, run.model.policy_state())
    run.engine.sampling = SamplingSettings(greedy=greedy)
    tasks = pick_tasks(run.make_env(), "test", 43)
    found = evaluate_tasks(run.make_env, run.engine, run.chat, tasks, run.react, run.console, seed=9, samples=12)
    return found.success()["mean"]


def rows(folder: Path) -> list[dict[str, Any]]:
    entries = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in e.items() if k not in TIMES} for e in entries]


@pytest.mark.slow
@pytest.mark.parametrize("algo", sorted(ALGORITHMS))
def test_the_identity_environment_is_solved(tmp_path: Path, algo: str) -> None:
    run = training(tmp_path, algo)
    before, greedy_before = success(run), success(run, greedy=True)
    assert 0.02 <= before <= 0.5 and greedy_before <= 0.75, "there must be something to learn, and a beginning"
    run.run()
    assert success(run) >= 0.95
    assert success(run, greedy=True) >= 0.95
    assert len(rows(tmp_path)) == 48 and (tmp_path / "checkpoints" / "update-48").is_dir()


@pytest.mark.parametrize("algo", sorted(ALGORITHMS))
def test_without_a_learning_rate_nothing_is_learned(tmp_path: Path, algo: str) -> None:
    run = training(tmp_path, algo, "--lr", "0", "--updates", "4")
    before, weights = success(run), run.model.policy_state()
    run.run()
    assert success(run) == before <= 0.5
    assert all(torch.equal(tensor, weights[name]) for name, tensor in run.model.policy_state().items())


@pytest.mark.parametrize("algo", sorted(ALGORITHMS))
def test_the_same_seed_gives_the_same_numbers(tmp_path: Path, algo: str) -> None:
    first, again, other = (tmp_path / name for name in ("first", "again", "other"))
    for folder, seed in ((first, 3), (again, 3), (other, 4)):
        training(folder, algo, "--updates", "3", "--test-tasks", "10", "--seed", str(seed)).run()
    assert len(rows(first)) == 7
    assert rows(first) == rows(again)
    assert (first / "episodes.jsonl").read_text() == (again / "episodes.jsonl").read_text()
    assert rows(first) != rows(other)


def test_every_action_carries_the_version_that_sampled_it(tmp_path: Path) -> None:
    run = training(tmp_path, "selfac", "--updates", "3")
    seen = []
    learn = run.learn

    def watched(update: int, roots: Any) -> dict[str, float]:
        seen.append({n.version for root in roots for n in root.walk() if n.kind is Kind.ACTION})
        return learn(update, roots)

    run.learn = watched  # type: ignore[method-assign]
    run.run()
    assert seen == [{0}, {1}, {2}]
