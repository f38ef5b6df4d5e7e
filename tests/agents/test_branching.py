"""The plan of one task alone: whom it asks, what it grants, and that it never spends more than it has."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from agents.rollout.forking.budget import Branch, TaskBudget
from agents.rollout.forking.settings import ForkPlan, ForkPoint, Sampling, TopUp


def branches(count: int, rng: random.Random) -> list[Branch]:
    return [Branch((rng.random(),), (rng.random(),), calls=1, rng=rng) for _ in range(count)]


def played(sampling: Sampling, wish: Sequence[int], seed: int) -> tuple[TaskBudget, int, int]:
    """(plan, forks, fresh) after a task in which everybody ends with some chance in every round."""
    rng = random.Random(seed)
    plan = TaskBudget(ForkPlan(sampling, lambda fork, rng: rng.choice(wish)))
    live, forked, begun = plan.made, 0, 0
    while live:
        live = sum(rng.random() < 0.6 for _ in range(live))
        left = plan.left
        forks, fresh = plan.decide(branches(live, rng))
        assert len(forks) == live and min([0, *forks]) == 0 and sum(forks) + fresh <= left
        assert not (live and fresh), "fresh ones begin only when nobody is left"
        live += sum(forks) + fresh
        forked, begun = forked + sum(forks), begun + fresh
    return plan, forked, begun


@pytest.mark.parametrize("top_up", TopUp)
@pytest.mark.parametrize("initial", [1, 3, 7, 8])
@pytest.mark.parametrize("wish", [(0,), (0, 1), (0, 5), (99,), (-3, 1)])
def test_exactly_the_budget_is_spent(top_up: TopUp, initial: int, wish: Sequence[int]) -> None:
    forks = 0
    for seed in range(20):
        plan, forked, begun = played(Sampling(8, initial, top_up=top_up), wish, seed)
        assert plan.made == 8 and plan.left == 0 and initial + forked + begun == 8
        forks += forked
    assert (forks > 0) == (initial < 8 and max(wish) > 0)


def test_what_is_missing_begins_at_once_or_one_by_one() -> None:
    for top_up, begun in ((TopUp.AT_ONCE, [6, 0]), (TopUp.ONE_BY_ONE, [1, 1])):
        plan = TaskBudget(ForkPlan(Sampling(8, 2, top_up=top_up), lambda fork, rng: 0))
        assert [plan.decide([])[1] for _ in range(2)] == begun


def test_what_is_asked() -> None:
    seen: list[ForkPoint] = []

    def rule(fork: ForkPoint, rng: random.Random) -> int:
        seen.append(fork)
        return 2

    plan = TaskBudget(ForkPlan(Sampling(7, 3), rule))
    live = branches(3, random.Random(0))
    assert plan.decide(live) == ([2, 2, 0], 0)
    assert [(f.live, f.made, f.left, f.calls) for f in seen] == [(3, 3, 4, 1), (3, 5, 2, 1)], "nobody asks for nothing"
    assert [(f.entropy, f.first_entropy) for f in seen] == [(b.entropy, b.first_entropy) for b in live[:2]]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"group": 4, "initial": 5}, r"initial must lie in 1\.\.4"),
        ({"group": 4, "initial": 0}, r"initial must lie in 1\.\.4"),
        ({"group": 0}, "at least 1"),
        ({"tokens": 0}, "at least 1"),
    ],
)
def test_wrong_settings_say_so(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Sampling(**wrong)


def test_a_plan_needs_a_beginning() -> None:
    with pytest.raises(ValueError, match=r"Sampling\.initial"):
        TaskBudget(ForkPlan(Sampling(4), lambda fork, rng: 0))
