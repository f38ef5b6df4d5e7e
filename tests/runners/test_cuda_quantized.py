"""Frozen weights in 4 and 8 bits on a real GPU, by bitsandbytes' kernels for CUDA."""

import json
from pathlib import Path

import pytest
from cuda_cases import CUDA, TOLERANCE, marks
from rich.console import Console
from test_quantized import actor, apart, folder, gradient_of_the_rounded_weights, near_and_gradients_flow, needs

from runners.loading.quantized import is_quantized
from runners.train import begin

pytestmark = [*marks, needs]
KINDS = ["int8", "nf4"]
__all__ = ["folder"]


@pytest.mark.parametrize("kind", KINDS)
def test_log_probabilities_are_near_and_gradients_flow(folder: str, kind: str) -> None:
    near_and_gradients_flow(folder, kind, CUDA)


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_that_of_the_rounded_weights(folder: str, kind: str) -> None:
    gradient_of_the_rounded_weights(folder, kind, CUDA)


@pytest.mark.parametrize("kind", KINDS)
def test_rollout_is_trainer(folder: str, kind: str) -> None:
    assert apart(actor(folder, kind, CUDA)) < TOLERANCE


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("own_cache")
def test_a_whole_run(kind: str, tmp_path: Path) -> None:
    small = {
        "updates": 1,
        "episodes": 8,
        "minibatches": 1,
        "eval-every": 0,
        "test-tasks": 0,
        "react.max-action-tokens": 6,
    }
    small |= {"pretrain.demonstrations": 20, "pretrain.steps": 5}
    argv = ["--env", "identity", "--device", "cuda", "--quantize", kind, "--out", str(tmp_path / "run")]
    argv += [word for name, value in small.items() for word in (f"--{name}", str(value))]
    with begin(argv, Console(quiet=True)) as training:
        assert is_quantized(training.model) and training.model.device.type == "cuda"
        training.run()
    rows = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text("utf-8").splitlines())
    (gap,) = (row["mismatch_max_abs"] for row in rows if "mismatch_max_abs" in row)
    assert gap < TOLERANCE
