"""Keys and values of many sessions take the memory of what they hold."""

import resource
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from agents.engine import cache
from agents.engine.cache import SlotCache, zeros

MIB = 1 << 20
SLOTS, LENGTH, HEADS, WIDTH = 64, 4096, 2, 64
ROWS = [(HEADS, WIDTH), (HEADS, WIDTH)]


def resident() -> int:
    """Bytes of this process that lie in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def filled(slots: SlotCache, length: int) -> int:
    """Bytes of the cache of one layer; the first ``length`` positions of every row are written."""
    pair = slots.of(0, ROWS, torch.empty(0))
    for x in pair:
        x[:, :, :length] = 1.0
    return sum(x.numel() * x.element_size() for x in pair)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize("length", [32, LENGTH])
def test_a_row_takes_the_memory_of_what_was_written(length: int) -> None:
    before = resident()
    slots = SlotCache(SLOTS, LENGTH, torch.device("cpu"))
    whole = filled(slots, length)
    assert slots.length == LENGTH and whole == 256 * MIB
    # With all that is allowed written, the whole is there: the measure sees what it has to see.
    taken = resident() - before
    assert abs(taken - whole) < 8 * MIB if length == LENGTH else taken < 8 * MIB


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_they_are_zeros_of_the_wanted_kind(dtype: torch.dtype) -> None:
    made = zeros((3, 5, 7), torch.empty(0, dtype=dtype))
    assert made.shape == (3, 5, 7) and made.dtype == dtype and not made.any()
    made[1] = 2.0
    assert made.sum() == 70


@pytest.mark.parametrize("first", [8, LENGTH])
def test_what_was_written_stays_when_the_rows_grow(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "FIRST_ON_CPU", first)
    slots = SlotCache(2, 64, torch.device("cpu"))
    random = torch.Generator().manual_seed(0)
    pair: tuple[Tensor, Tensor] = slots.of(0, ROWS, torch.empty(0))
    for x in pair:
        x[:, :, :8] = torch.randn(2, HEADS, 8, WIDTH, generator=random)
    slots.reserve(9)
    assert slots.length == (10 if first == 8 else 64)
    for new, old in zip(slots.layers[0], pair, strict=True):
        assert torch.equal(new[:, :, :8], old[:, :, :8]) and not new[:, :, 8:].any()
