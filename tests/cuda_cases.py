"""What the tests on a GPU share: when they are left out, and small models with heads that CUDA's kernels take."""

import os

import pytest
import torch
from engine_cases import WIDE, model
from transformers import PreTrainedModel

ABSENT = not torch.cuda.is_available() and not os.environ.get("TURNWISE_NEEDS_GPU")
marks = [pytest.mark.gpu, pytest.mark.skipif(ABSENT, reason="torch finds no CUDA device")]
CUDA = torch.device("cuda")
TOLERANCE = 5e-5
"""Of log-probabilities in float32, between a GPU's products and the CPU's."""


def base(family: str, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """On the CPU; its heads are 32 wide."""
    return model(family, size=WIDE).to(dtype)
