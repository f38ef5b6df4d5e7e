"""A learner in several processes: every algorithm's gradient, whole runs, and what becomes of a rank that is lost."""

import io
import os
import signal
from json import loads
from pathlib import Path

import pytest
import torch
from rank_processes import run_ranks
from rich.console import Console
from run_cases import rows, settings, training

from runners.command_line.errors import UserError
from runners.run_folder.runs import CONFIG
from runners.settings.fitting import check_fit
from runners.settings.learner_ranks import LearnerRanks
from runners.training.ranks import MEETING, RankedLearner
from runners.training.run import Training
from runners.training.start import resume

pytestmark = pytest.mark.usefixtures("own_cache")


# -- settings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "2", "ddp", "ddp:", "ddp:two", "ddp:1", "fsdp:65", "zero:2", "local:2", "ddp:²"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="learner"):
        LearnerRanks.of(text)


def test_the_words_there_are() -> None:
    assert LearnerRanks.of("local") == LearnerRanks("local", 1)
    assert LearnerRanks.of("fsdp:4") == LearnerRanks("fsdp", 4)


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        ((), "leaves no whole model to play with"),
        (("--workers", "1", "--quantize", "int8"), "cannot cut quantised weights"),
        (("--workers", "1", "--algo", "adca", "--judge.kind", "policy"), "no whole model to judge with"),
    ],
)
def test_what_cut_weights_cannot_do_is_refused(tmp_path: Path, argv: tuple[str, ...], why: str) -> None:
    sizes = ("--episodes", "32")
    with pytest.raises(UserError, match=why):
        check_fit(settings(tmp_path / "run", *sizes, "--learner", "fsdp:2", *argv))
    if not argv:
        check_fit(settings(tmp_path / "run", *sizes, "--learner", "ddp:2"))


# -- the gradient ------------------------------------------------------------------------------------------------


@pytest.mark.runs
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_every_algorithm_has_the_gradient_of_one_process(tmp_path: Path, kind: str) -> None:
    run_ranks(Path(__file__).with_name("ranked_child.py"), 2, kind, tmp_path, seconds=900)
    found = loads((tmp_path / "found.json").read_text())
    assert len(found) >= 10
    assert {algo: off for algo, off in found.items() if off > 1e-5} == {}


# -- runs --------------------------------------------------------------------------------------------------------


def close(ours: Path, whole: Path) -> None:
    """The runs played the same episodes and learned the same up to rounding."""
    one, other = rows(ours), rows(whole)
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert a.keys() == b.keys()
        for key in ("success", "reward", "turns", "sampled_tokens", "grad_norm", "policy", "value"):
            if key in a and isinstance(a[key], float):
                assert a[key] == pytest.approx(b[key], abs=1e-4), key


@pytest.mark.runs
@pytest.mark.parametrize(("learner", "workers"), [("ddp:2", "0"), ("ddp:3", "0"), ("fsdp:2", "1")])
def test_a_run_is_that_of_one_process(tmp_path: Path, learner: str, workers: str) -> None:
    with training(tmp_path / "whole") as run:
        run.run()
    with training(tmp_path / "shared", "--learner", learner, "--workers", workers) as run:
        assert isinstance(run.learner, RankedLearner)
        run.run()
        assert (tmp_path / "shared" / MEETING).exists()
    assert not (tmp_path / "shared" / MEETING).exists()
    close(tmp_path / "shared", tmp_path / "whole")


def pids(run: Training) -> list[int]:
    assert isinstance(run.learner, RankedLearner)
    return [child.pid for child in run.learner._children]


@pytest.mark.runs
def test_a_lost_rank_ends_the_run_in_one_line_and_one_process_goes_on(tmp_path: Path) -> None:
    with training(tmp_path / "whole") as run:
        run.run()
    folder = tmp_path / "shared"
    run = training(folder, "--learner", "ddp:2")
    (lost,) = pids(run)
    with run, pytest.raises(UserError, match=r"rank 1 of the learner was lost \(signal SIGKILL.*--resume"):
        run.save()
        run.evaluate()
        run.next_update()
        os.kill(lost, signal.SIGKILL)
        run.next_update()
    with pytest.raises(ProcessLookupError):
        os.kill(lost, 0)
    config = (folder / CONFIG).read_text()
    assert "learner: ddp:2" in config
    (folder / CONFIG).write_text(config.replace("learner: ddp:2", "learner: local"))
    with resume(folder, Console(file=io.StringIO())) as run:
        assert run.update == 1
        run.run()
    close(folder, tmp_path / "whole")


@pytest.mark.runs
def test_a_run_of_several_ranks_resumes_to_the_same_bits(tmp_path: Path) -> None:
    with training(tmp_path / "whole", "--learner", "ddp:2", "--replay-steps", "1") as run:
        run.run()
    folder = tmp_path / "stopped"
    with training(folder, "--learner", "ddp:2", "--replay-steps", "1") as run:
        run.save()
        run.evaluate()
        run.next_update()
        run.evaluate()
        run.next_update()
        run.evaluate()
    with resume(folder, Console(file=io.StringIO())) as run:
        run.run()
    assert rows(folder) == rows(tmp_path / "whole")


@pytest.mark.runs
def test_ranks_that_differ_are_noticed(tmp_path: Path) -> None:
    """The control of the check after every update: one rank's parameters were moved by a bit."""
    with training(tmp_path / "run", "--learner", "ddp:2") as run:
        run.next_update()
        with torch.no_grad():
            run.model.value_parameters()[0].view(-1)[0] += 1e-3
        with pytest.raises(UserError, match="different parameters"):
            run.next_update()
