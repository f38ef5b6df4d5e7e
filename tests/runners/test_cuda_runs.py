"""Whole runs on a real GPU: they learn what a run on the CPU learns, resume, and say where they ran."""

from pathlib import Path

import pytest
from cuda_cases import marks
from run_cases import fingerprint, gradient, played, rows, training
from test_resume import go_on, in_rollout

from runners.training.interrupts import Stopped

pytestmark = [*marks, pytest.mark.usefixtures("own_cache")]


@pytest.mark.parametrize("algo", ["selfac", "grpo", "turn_ppo"])
def test_the_first_gradient_is_that_of_the_cpu(tmp_path: Path, algo: str) -> None:
    found = {}
    for device in ("cpu", "cuda"):
        with training(tmp_path / device, "--algo", algo, "--device", device) as run:
            assert run.model.device.type == device
            trees = played(run)
            found[device] = (
                [[node.tokens for node in tree.root.walk()] for tree in trees],
                [g.cpu() for g in gradient(run.learner, trees)],
            )
    assert found["cpu"][0] == found["cuda"][0], "the same seeds play the same episodes"
    largest = max(float(g.abs().max()) for g in found["cpu"][1])
    pairs = zip(found["cpu"][1], found["cuda"][1], strict=True)
    assert all((a - b).abs().max() <= 1e-3 * largest for a, b in pairs)


@pytest.mark.parametrize("algo", ["selfac", "grpo"])
def test_a_resumed_run_goes_on_where_it_was(tmp_path: Path, algo: str) -> None:
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    with training(whole, "--algo", algo, "--device", "cuda") as run:
        run.run()
    with pytest.raises(Stopped), training(parted, "--algo", algo, "--device", "cuda") as run:
        in_rollout(3)(run)
        run.run()
    with go_on(parted) as run:
        assert run.model.device.type == "cuda"
        run.run()
    assert rows(parted) == rows(whole)
    assert fingerprint(parted) == fingerprint(whole)
