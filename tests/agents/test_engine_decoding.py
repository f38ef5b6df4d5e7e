"""Sessions of similar length attend together; those that are much longer than the others attend apart."""

import random

import numpy as np
import pytest
import torch
from engine_cases import FAMILIES, Session, engine_of, largest_error, model, play, sessions, some
from engine_contract import TOLERANCE

from agents.engine import Request, body
from agents.engine import decoding as module
from agents.engine.decoding import bands

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def without_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions attend in bands where no C computes the model."""
    monkeypatch.setattr(body, "can_compile", lambda: False)


def lengths_of(pos: list[int]) -> list[list[int]]:
    """The lengths of each band."""
    position = np.array(pos)
    found = bands(np.arange(len(pos)), position, CPU)
    whole = [np.arange(len(pos)) if band.at_N is None else band.at_N.numpy() for band in found]
    assert sorted(np.concatenate(whole).tolist()) == list(range(len(pos))), "every session is in one band"
    for band, at in zip(found, whole, strict=True):
        assert band.rows.tolist() == at.tolist() == sorted(at.tolist())
        assert band.keys_to == position[at].max() + 1
    return [sorted((position[at] + 1).tolist()) for at in whole]


def test_what_attends_together() -> None:
    assert bands(np.arange(0), np.arange(0), CPU) == []
    assert lengths_of([500] * 128) == [[501] * 128]
    assert lengths_of([4000]) == [[4001]]
    assert lengths_of([59] * 30 + [3499] + [59] * 33) == [[60] * 63, [3500]]
    assert lengths_of([59] * 63 + [150]) == [[60] * 63 + [151]], "a band of its own would save too little"
    three = lengths_of([59] * 40 + [999] * 20 + [7999] * 2)
    assert three == [[60] * 40, [1000] * 20, [8000] * 2]
    assert lengths_of(list(range(100, 200))) == [list(range(101, 201))]


@pytest.mark.parametrize("family", FAMILIES)
def test_bands_equal_a_plain_forward(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SAVED", 1)
    monkeypatch.setattr(module, "_SAVED_SHARE", 0.05)
    several = []
    cut = module._cut

    def seen(order: np.ndarray, length: np.ndarray) -> list[np.ndarray]:
        several.append(len(found := cut(order, length)))
        return found

    monkeypatch.setattr(module, "_cut", seen)
    reference = model(family)
    engine = engine_of(reference, slots=7, share_prefixes=False)
    todo = sessions(24)
    play(engine, todo, delay=4)
    assert max(several) >= 3
    assert largest_error(reference, todo) <= TOLERANCE


@pytest.mark.parametrize("share", [0.25, 1.0])
@pytest.mark.parametrize("family", ["mistral", "mixed"])
def test_a_session_looks_at_its_own_window_only(family: str, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a band that is much longer than the window; with a share of 1 wherever it is longer at all."""
    monkeypatch.setattr(module, "_WINDOW_SHARE", share)
    reference, near, shift, seen = model(family), module.Band.near, 0, []

    def looked(band: module.Band, window: int, cached: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        seen.append(window)
        place, mask = near(band, window, cached)
        return (place - shift).clamp_min(0), mask

    def error() -> float:
        engine, todo = engine_of(reference, slots=7, share_prefixes=False), sessions(24)
        play(engine, todo, delay=4)
        return largest_error(reference, todo)

    monkeypatch.setattr(module.Band, "near", looked)
    assert error() <= TOLERANCE and seen
    shift = 1
    assert error() > 0.1, "the test would notice"


def test_a_session_in_the_wrong_band_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the long session looks at no more than the short ones do."""
    reference = model("llama")

    def error() -> float:
        engine = engine_of(reference, slots=4, share_prefixes=False)
        rng = random.Random(0)
        lengths = enumerate((20, 150, 20, 20))
        todo = {i: Session([Request(i, some(rng, length, length), 9, seed=i)]) for i, length in lengths}
        play(engine, todo)
        return largest_error(reference, todo)

    assert error() <= TOLERANCE
    made = module.Band.__init__

    def short(
        self: module.Band, rows: np.ndarray, pos: np.ndarray, at: np.ndarray | None, device: torch.device
    ) -> None:
        made(self, rows, np.minimum(pos, 30), at, device)

    monkeypatch.setattr(module.Band, "__init__", short)
    assert error() > 0.01
