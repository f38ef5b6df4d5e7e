"""What is asked of PyTorch around an update on a GPU, and that it ends with it. A GPU's own bits: test_cuda_runs.py."""

import os
from types import SimpleNamespace

import pytest
import torch

from runners.loading import base_model
from runners.loading.reproducible import WORKSPACE, prepare, reproducible
from runners.settings.run_settings import read_settings


def test_only_a_gpu_is_asked_and_only_inside() -> None:
    with reproducible(torch.device("cpu")):
        assert not torch.are_deterministic_algorithms_enabled()
    with pytest.raises(KeyError), reproducible(torch.device("cuda")):
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert not torch.utils.deterministic.fill_uninitialized_memory
        raise KeyError
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.utils.deterministic.fill_uninitialized_memory


def test_a_model_is_probed_as_it_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    """On CUDA the probe compiles the kernels of attention, and they are compiled for this state of PyTorch's."""
    asked = []

    def made(*_: object, **__: object) -> None:
        asked.append(torch.are_deterministic_algorithms_enabled())

    monkeypatch.setattr(base_model, "ActorCritic", made)
    for device in ("cuda", "cpu"):
        model = SimpleNamespace(device=torch.device(device))
        base_model.actor_on(model, read_settings(["--env", "identity"]))  # type: ignore[arg-type]
    assert asked == [True, False]


def test_what_the_user_asked_for_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        with reproducible(torch.device("cuda")):
            assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert torch.get_deterministic_debug_mode() == 2
    finally:
        torch.use_deterministic_algorithms(False)
    monkeypatch.setenv(WORKSPACE, ":16:8")
    prepare(torch.device("cuda"))
    assert os.environ[WORKSPACE] == ":16:8"
    monkeypatch.delenv(WORKSPACE)
    prepare(torch.device("cpu"))
    assert WORKSPACE not in os.environ
    prepare(torch.device("cuda", 1))
    assert os.environ[WORKSPACE] == ":4096:8"
