"""Whole runs with partial rollouts: the same bits on every backend and after a stop, and probabilities of the policy
that sampled, also where an episode began with an earlier one."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from run_cases import rows, training
from test_staleness_runs import events, lags, records, stop_in

from agents.tree.episode import Episode
from agents.tree.packing import pack
from runners.train import begin
from runners.training.interrupts import Stopped
from runners.training.run import Training

pytestmark = [pytest.mark.runs, pytest.mark.usefixtures("own_cache")]

PARTIAL = (
    "--overprovision",
    "6",
    "--staleness",
    "2",
    "--partial-rollouts",
    "--slots",
    "8",
    "--identity.max-turns",
    "30",
)
PARTIAL += ("--react.max-tokens", "1500", "--pretrain.flaw", "0.5")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("whole") / "run"
    with training(folder, *PARTIAL) as run:
        run.run()
    return folder


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_same_run_on_every_backend(tmp_path: Path, whole: Path, workers: str) -> None:
    with training(tmp_path / "run", *PARTIAL, "--workers", workers) as run:
        run.run()
    assert records(tmp_path / "run") == records(whole)
    updates = [row for row in rows(whole) if row["kind"] == "update"]
    assert [row["cut"] for row in updates] == [6] * 4 and [row["continued"] for row in updates] == [0, 6, 6, 6]
    assert 0 < max(lags(whole)) <= 2


def test_a_stopped_run_goes_on_with_the_same_bits(tmp_path: Path, whole: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(Stopped), training(folder, *PARTIAL) as run:
        stop_in(run, 3)
        run.run()
    with begin(["--resume", str(folder)], Console(file=io.StringIO())) as run:
        run.run()
    assert records(folder) == records(whole)
    found = events(folder)
    assert found["dispatched"] == found["trained"] + found["dropped"] and "dispatched again" not in found
    assert len(found["trained"]) == 4 * 16 and set(found["dispatched"].values()) == {1}


def two_updates(folder: Path) -> tuple[Training, list[Episode]]:
    """A run after its first update, and the episodes of the second one that began in the first one."""
    run = training(folder, *PARTIAL, "--test-tasks", "0", "--lr", "0.02")
    run.next_update()
    episodes = run.rollouts.next(2, run.policy).played.episodes
    return run, [e for e in episodes if len({action.version for action, _ in e.turns}) > 1]


def difference(run: Training, episode: Episode, version: int) -> float:
    """The largest difference between the engine's and the trainer's log-probabilities, over a version's tokens."""
    batch = pack([episode.root])
    with torch.no_grad():
        logp_N = run.model(batch).logp_T[batch.action_T >= 0]
    of_N = torch.tensor([action.version for action, _ in episode.turns for _ in action.tokens])
    played_N = batch.old_logp_T[batch.action_T >= 0]
    return float((logp_N - played_N).abs()[of_N == version].max())


def test_what_a_later_policy_samples_has_its_probabilities(tmp_path: Path) -> None:
    run, episodes = two_updates(tmp_path / "run")
    with run:
        assert episodes, "some went on"
        assert max(difference(run, episode, 1) for episode in episodes) <= 1e-5
        assert max(difference(run, episode, 0) for episode in episodes) > 1e-3, "the first turns are the old policy's"


def test_a_task_that_is_gone_is_told_in_one_line(tmp_path: Path, whole: Path) -> None:
    with training(tmp_path / "run", *PARTIAL, "--updates", "1") as run:
        run.run()
        tasks = run.stream.streams["identity"].tasks
        gone: dict[str, Any] = {"env": "", "task": "identity-train-99999999", "sample": 0, "attempt": 0}
        with pytest.raises(Exception, match="the training task identity-train-99999999, an episode of which goes on"):
            run.job_again({"identity": tasks}, gone)  # type: ignore[dict-item]
    assert json.loads((tmp_path / "run" / "summary.json").read_text())
