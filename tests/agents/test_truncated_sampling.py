"""Draws from the most probable tokens: which are kept, what is recorded, and that the default is not touched."""

import math

import numpy as np
import pytest
import torch

from agents.engine import SamplingSettings
from agents.engine.sampling import draw, truncated

LOGITS = torch.tensor([[0.0, math.log(2.0), -math.inf, math.log(5.0)]])
"""Probabilities 1/8, 2/8, 0, 5/8."""


@pytest.mark.parametrize(
    ("top_p", "top_k", "kept"),
    [
        (1.0, 0, {0: 1 / 8, 1: 2 / 8, 3: 5 / 8}),
        (0.62, 0, {3: 1.0}),  # the first token reaches it
        (0.63, 0, {3: 5 / 7, 1: 2 / 7}),
        (0.88, 0, {3: 5 / 8, 1: 2 / 8, 0: 1 / 8}),
        (1e-9, 0, {3: 1.0}),
        (1.0, 1, {3: 1.0}),
        (1.0, 2, {3: 5 / 7, 1: 2 / 7}),
        (1.0, 99, {3: 5 / 8, 1: 2 / 8, 0: 1 / 8}),
        (0.62, 2, {3: 1.0}),
        (0.99, 2, {3: 5 / 7, 1: 2 / 7}),
    ],
)
def test_what_is_kept(top_p: float, top_k: int, kept: dict[int, float]) -> None:
    p = truncated(LOGITS.log_softmax(-1), top_p, top_k).exp()[0].tolist()
    assert p == pytest.approx([kept.get(token, 0.0) for token in range(4)], abs=1e-6)


def test_of_equals_the_first_ones_stay() -> None:
    logp = torch.zeros(1, 4).log_softmax(-1)
    assert truncated(logp, 1.0, 2).exp()[0].tolist() == pytest.approx([0.5, 0.5, 0.0, 0.0])
    assert truncated(logp, 0.49, 0).exp()[0].tolist() == pytest.approx([0.5, 0.5, 0.0, 0.0])


def test_draws_follow_what_is_kept_and_record_it() -> None:
    uniform = torch.from_numpy(np.random.default_rng(0).random(4000))
    logits = LOGITS.expand(4000, -1)
    token, logp, entropy = draw(logits, uniform, SamplingSettings(top_k=2))
    assert set(token.tolist()) == {1, 3}
    assert (token == 3).double().mean().item() == pytest.approx(5 / 7, abs=0.03)
    assert logp[token == 3][0].item() == pytest.approx(math.log(5 / 7), abs=1e-6)
    assert entropy[0].item() == pytest.approx(-(5 / 7 * math.log(5 / 7) + 2 / 7 * math.log(2 / 7)), abs=1e-6)
    # What the trainer, which knows of no truncation, gives them: the mass that was kept, on average of the ratio.
    ratio = (LOGITS.log_softmax(-1)[0, token] - logp).exp()
    assert ratio.mean().item() == pytest.approx(7 / 8, abs=1e-5)


def test_the_default_and_the_best_token_are_not_touched() -> None:
    logits, uniform = torch.randn(50, 30), torch.from_numpy(np.random.default_rng(1).random(50))
    best, cut = SamplingSettings(greedy=True), SamplingSettings(greedy=True, top_p=0.5, top_k=3)
    pairs = zip(draw(logits, uniform, best), draw(logits, uniform, cut), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    whole = draw(logits, uniform, SamplingSettings())
    assert torch.equal(whole[1], logits.log_softmax(-1).gather(-1, whole[0][:, None])[:, 0])
    narrow = draw(logits, uniform, SamplingSettings(top_p=0.5))
    assert not torch.equal(whole[1], narrow[1])  # the control


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"top_p": 0.0}, "top_p must lie above 0 and up to 1, not 0.0"),
        ({"top_p": 1.1}, "top_p must lie above 0 and up to 1, not 1.1"),
        ({"top_k": -1}, "top_k must not be negative, but is -1"),
    ],
)
def test_wrong_settings_say_so(wrong: dict[str, float], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        SamplingSettings(**wrong)  # type: ignore[arg-type]
