"""Every setting of every algorithm changes something, or `idle` says what it needs."""

import random
from dataclasses import fields, replace
from enum import StrEnum
from typing import Any

import pytest
import torch
from algorithm_trees import world
from every_algorithm import EVERY, groups, update

from algorithms import Algorithm, ForkPoint, JudgedAlgorithm
from algorithms.base import idle
from algorithms.formulas.groups import Aggregation
from algorithms.grpo import GRPO

LOGGED = {"enable_adca_metric"}
"""Settings that change the log alone."""
AFTER = {"freeze_adv", "similarity"}
"""Settings that act where values have moved since the credit, or where observations are nearly the same."""
OTHERS: dict[str, list[Any]] = {
    "aggregation": list(Aggregation),
    "std_floor": [5.0],
    "gae_lambda": [0.3, 0.7],
    "td_max": [1],
    "beta": [1e-4],
    "kl_coef": [0.3],
    "value_clip": [0.01],
    "dual_clip": [1.05],
    "clip": [0.01],
    "clip_low": [0.01],
    "clip_high": [0.01],
    "std_eps": [0.5],
    "alpha_steps": [7],
    "length_norm": [100.0],
    "group": [5],
    "initial_rollouts": [3],
    "entropy_weight": [0.9],
}
"""Values to try; for others a choice's members, the other truth, or a number nearby."""


def others(name: str, value: Any, default: Any) -> list[Any]:
    if name in OTHERS:
        return [x for x in OTHERS[name] if x != value]
    if isinstance(value, bool):
        return [not value]
    if isinstance(default, StrEnum):
        return [x for x in type(default) if x != value]
    if isinstance(value, int):
        return [value + 1]
    return [0.5 * value + 0.1, 0.5 * value + 0.3]


def does(algorithm: Algorithm[Any]) -> list[Any]:
    """What it makes of one batch and of some forks: all that a setting could change."""
    w = world(12, gap=0.8)
    trees = groups(w, 5, blank=0.05)
    for root in trees:
        for node in root.walk():
            node.version = 3
    loss, logp, value = update(w, algorithm, trees)
    batch = w.batch(trees, critic=algorithm.needs.critic)
    rng = random.Random(0)
    entropy = [(rng.random(), rng.random(), rng.random()) for _ in range(40)]
    points = [
        ForkPoint(now, first, live=2, made=3, left=4, calls=1)
        for now, first in zip(entropy, entropy[::-1], strict=True)
    ]
    result: list[Any] = [loss, logp, value, algorithm.sampling, algorithm.needs, algorithm.values]
    result.append([algorithm.branch(point, random.Random(i)) for i, point in enumerate(points)])
    if isinstance(algorithm, JudgedAlgorithm) and algorithm.needs.judge:
        visit_L = torch.arange(batch.leaf_L.numel()) % 3
        result += [algorithm.asked(batch.return_L, batch.tree_L, visit_L)]
        result += [algorithm.judge_score(batch.return_L, batch.tree_L)]
    return result


def alike(ours: list[Any], theirs: list[Any]) -> bool:
    return len(ours) == len(theirs) and all(
        torch.allclose(torch.as_tensor(a).double(), torch.as_tensor(b).double(), atol=1e-6)
        if isinstance(a, torch.Tensor | float)
        else a == b
        for a, b in zip(ours, theirs, strict=True)
    )


@pytest.mark.parametrize("algorithm", EVERY.values(), ids=EVERY)
def test_every_setting_acts_or_is_refused(algorithm: Algorithm[Any]) -> None:
    settings: Any = algorithm
    before, defaults = does(algorithm), type(settings)()
    assert not idle(algorithm), "the variant itself"
    for field in fields(settings):
        value, default = getattr(settings, field.name), getattr(defaults, field.name)
        if field.name in LOGGED | AFTER or field.name == "formula":
            continue
        tried = 0
        acted: list[Any] = []
        for other in others(field.name, value, default):
            try:
                changed = replace(settings, **{field.name: other})
            except ValueError:
                continue  # refused
            if other == default:
                continue  # what is not set cannot be refused
            silent, refused = alike(does(changed), before), field.name in idle(changed)
            assert silent or not refused, f"{field.name} {other} acts, and is refused"
            tried += not refused
            acted += [other] * (not silent)
        assert acted or not tried, f"{field.name} does nothing, and is not refused"


def test_what_does_nothing_is_noticed() -> None:
    """The control: without its rule the same setting would be silent."""
    assert alike(does(GRPO(discount=0.5)), does(GRPO())) and idle(GRPO(discount=0.5)) == {"discount": "baseline none"}
    assert not alike(does(GRPO(baseline="none", scale="none", discount=0.5)), does(GRPO(baseline="none", scale="none")))
