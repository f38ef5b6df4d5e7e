"""Inverse-CDF draws: the right distribution, log-probabilities and entropies."""

import math
import random

import numpy as np
import pytest
import torch
from engine_cases import VOCABULARY, engine_of, model, one, plain, some

from agents.engine import Request, SamplingSettings
from agents.engine.base import uniforms
from agents.engine.rows import SlotRows
from agents.engine.sampling import draw

LOGITS = torch.tensor([[0.0, math.log(2.0), -math.inf, math.log(5.0)]])
"""Probabilities 1/8, 2/8, 0, 5/8."""


def at(u: float, sampling: SamplingSettings | None = None) -> tuple[int, float, float]:
    drawn = draw(LOGITS, torch.tensor([u], dtype=torch.float64), sampling or SamplingSettings())
    token, logp, entropy = (x.item() for x in drawn)
    return int(token), logp, entropy


def test_literal_draws() -> None:
    entropy = -sum(p * math.log(p) for p in (1 / 8, 2 / 8, 5 / 8))
    for u, token, p in ((0.0, 0, 1 / 8), (0.124, 0, 1 / 8), (0.126, 1, 2 / 8), (0.374, 1, 2 / 8), (0.376, 3, 5 / 8)):
        assert at(u) == (token, pytest.approx(math.log(p), abs=1e-6), pytest.approx(entropy, abs=1e-6))


def test_the_ends_of_the_unit_interval() -> None:
    assert at(0.0)[0] == 0
    assert at(np.nextafter(1.0, 0.0))[0] == 3
    last_is_zero = torch.tensor([[-math.inf, 0.0, 1.0, -math.inf]])
    for u, token in ((0.0, 1), (np.nextafter(1.0, 0.0), 2)):
        drawn = draw(last_is_zero, torch.tensor([u], dtype=torch.float64), SamplingSettings())
        assert drawn[0].item() == token
        assert math.isfinite(drawn[1].item()) and math.isfinite(drawn[2].item())


def test_greedy_takes_the_best_and_still_records() -> None:
    assert at(0.0, SamplingSettings(greedy=True))[:2] == (3, pytest.approx(math.log(5 / 8), abs=1e-6))


def test_temperature_divides_the_logits() -> None:
    p = 5**2 / (1 + 2**2 + 5**2)
    assert at(0.9, SamplingSettings(temperature=0.5))[1] == pytest.approx(math.log(p), abs=1e-6)
    with pytest.raises(ValueError, match="temperature"):
        SamplingSettings(temperature=0.0)


def test_uniforms_are_philox_and_a_prefix_stays() -> None:
    assert np.array_equal(uniforms(7, 5), np.random.Generator(np.random.Philox(key=7)).random(5))
    assert np.array_equal(uniforms(7, 100)[:5], uniforms(7, 5))
    assert not np.array_equal(uniforms(8, 5), uniforms(7, 5))


def chi_square(counts: np.ndarray, p: np.ndarray) -> float:
    """Standard deviations of the statistic above its mean; cells that are expected rarely are put together."""
    expected = p * counts.sum()
    rare = expected < 5
    observed = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    observed, expected = observed[expected > 0], expected[expected > 0]
    freedom = len(observed) - 1
    return (((observed - expected) ** 2 / expected).sum() - freedom) / math.sqrt(2 * freedom)


def test_the_engine_samples_the_models_distribution() -> None:
    reference = model("qwen2")
    with torch.no_grad():
        reference.lm_head.weight.mul_(3)  # some tokens are likely, many are not
    prompt = some(random.Random(0), 20, 20)
    engine = engine_of(reference, slots=100)
    counts = np.zeros(VOCABULARY)
    for start in range(0, 5000, 100):
        for seed in range(start, start + 100):
            engine.submit(Request(seed, prompt, 1, seed=seed))
        while engine.pending:
            for done in engine.step():
                counts[done.tokens[0]] += 1
        for seed in range(start, start + 100):
            engine.close_session(seed)
    p = plain(reference, prompt)[-1].exp().double().numpy()
    assert (p > 0.001).sum() > 20
    assert chi_square(counts, p / p.sum()) < 4
    for wrong in (p**1.2, np.roll(p, 1)):
        assert chi_square(counts, wrong / wrong.sum()) > 8


def test_later_tokens_use_later_uniforms() -> None:
    reference = model("qwen2")
    prompt = some(random.Random(0), 20, 20)
    engine = engine_of(reference)
    done = one(engine, Request(0, prompt, 70, seed=3))
    tokens = prompt + done.tokens
    p = plain(reference, tokens).double().exp()
    u = uniforms(3, 70)
    for k, token in enumerate(done.tokens):
        cdf = p[len(prompt) - 1 + k].cumsum(0)
        low = cdf[token - 1].item() if token else 0.0
        assert low - 1e-5 <= u[k] * cdf[-1].item() <= cdf[token].item() + 1e-5


def test_rows_draw_the_same_numbers_bit_by_bit() -> None:
    """As they are needed, in turn with those of other rows."""
    rows, both = SlotRows(3), np.array([0, 2])
    for row, seed in ((0, 5), (2, 2**127 + 9)):
        rows.begin(row, seed, 300, skip=7)
    drawn, full = [], np.array([False])
    while not full.any():
        drawn.append(rows.uniform(both))
        full = rows.record(both, np.zeros((3, 2)))
    assert full.all() and len(drawn) == 300
    for mine, seed in zip(np.array(drawn).T, (5, 2**127 + 9), strict=True):
        assert np.array_equal(mine, uniforms(seed, 300, 7))
