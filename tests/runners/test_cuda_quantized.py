"""Frozen weights in 4 and 8 bits on a real GPU, by bitsandbytes' kernels for CUDA."""

import json
from pathlib import Path

import pytest
import torch
from cuda_cases import CUDA, TOLERANCE, marks
from rich.console import Console
from test_quantized import BOUND, actor, apart, folder, needs, row

from runners.loading.quantized import is_quantized
from runners.train import begin

pytestmark = [*marks, needs]
KINDS = ["int8", "nf4"]
__all__ = ["folder"]


@pytest.mark.parametrize("kind", KINDS)
def test_log_probabilities_are_near_and_gradients_flow(folder: str, kind: str) -> None:
    batch, plain, few = row(CUDA), actor(folder, "none", CUDA), actor(folder, kind, CUDA)
    new = few(batch)
    off = (new.logp_T - plain(batch).logp_T).abs()[batch.action_T >= 0].mean()
    assert 1e-4 < off < BOUND[kind]
    (new.logp_T.sum() + new.value_S.sum()).backward()
    grads = [p.grad for p in few.policy_parameters()]
    assert all(g is not None and g.isfinite().all() for g in grads) and any(g.abs().sum() > 0 for g in grads)


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_that_of_the_rounded_weights(folder: str, kind: str) -> None:
    layer = actor(folder, kind, CUDA).causal_model.model.layers[0].mlp.up_proj.get_base_layer()
    x = torch.randn(5, 128, device=CUDA, requires_grad=True)
    weight_OI = layer(torch.eye(128, device=CUDA)).detach().T
    times = torch.arange(5.0, device=CUDA)[:, None]
    (layer(x) * times).sum().backward()
    assert torch.allclose(layer(x), x @ weight_OI.T, atol=1e-5)
    assert x.grad is not None and torch.allclose(x.grad, times * weight_OI.sum(0), atol=1e-4)


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
