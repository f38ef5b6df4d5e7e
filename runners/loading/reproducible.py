"""Sums on a GPU in one order: an update that is done again gives the same bits.

Some of CUDA's sums over rows add in whatever order their threads arrive. PyTorch has another kernel for nearly all of
them, which it takes on demand; of one that has none it warns, once.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.utils.deterministic as details

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
"""Environment variable without which PyTorch takes no product on CUDA as reproducible."""


def prepare(device: torch.device) -> None:
    """To be called before a GPU's first product; what the user set stays."""
    if device.type == "cuda":
        os.environ.setdefault(WORKSPACE, ":4096:8")


@contextmanager
def reproducible(device: torch.device) -> Iterator[None]:
    """Everything inside that ``device`` sums up is summed in one order. A CPU does so anyway."""
    if device.type != "cuda":
        yield
        return
    before = torch.get_deterministic_debug_mode(), details.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True, warn_only=True)
    details.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # every entry is written anyway
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before[0])
        details.fill_uninitialized_memory = before[1]  # type: ignore[attr-defined]
