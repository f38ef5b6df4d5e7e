"""Every algorithm of the dictionary in its variants, and one update of it on random trees, whole or in pieces.

A new algorithm is tested with its defaults; interesting options are a line in `VARIANTS`.
"""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from algorithm_trees import World, counted
from torch import Tensor

from agents.tree import Batch, Forward, Kind, Node
from agents.tree.chunked_backward import backward, cut, forward_parts
from algorithms import ALGORITHMS, Algorithm
from algorithms.selfac import SelfAC

VARIANTS: dict[str, list[dict[str, Any]]] = {
    "adca": [
        {},
        {"orm_distribution": "all_steps", "equal_trajectory_weight": False, "alpha": 0.7},
        {"prm_scheme": "allocation", "aggregation": "seq-mean-token-mean", "suffix": False},
        {"skip_type": "skip_all_neg", "do_batch_norm": False, "fix_base": 1.0},
        {"enable": False},
    ],
    "exact_critic": [{}, {"ratio": "token", "normalize": "whiten"}, {"gae_lambda": 1.0, "ratio": "turn_mean"}],
    "gigpo": [{}, {"norm": "mean_std_norm", "statistics": "episodes", "aggregation": "seq-mean-token-mean"}],
    "grpo": [
        {},
        {"ratio": "sequence", "baseline": "leave_one_out", "scale": "batch"},
        {"ratio": "sequence_mean", "aggregation": "seq-mean-token-sum-norm", "scale": "none", "gate": "soft"},
        {"baseline": "none", "scale": "tokens", "discount": 0.9},
        {"baseline": "none", "scale": "none", "aggregation": "seq-mean-token-sum"},
        {"gate": "cispo", "scale": "tokens", "drop_equal": True},
        {"gate": "geometric", "ratio": "sequence_mean", "clip_low": 0.4, "clip_high": 0.4, "overlong_max": 9}
        | {"overlong_cache": 5},
        {"baseline": "length", "scale": "none"},
        {"baseline": "none", "scale": "tokens", "kl_in_reward": True, "kl_coef": 0.2, "group": 1},
    ],
    "naive_ac": [{}, {"formula": SelfAC(ratio="token", gae_lambda=0.5)}],
    "pacs": [
        {},
        {"estimator": "grpo", "spread": "floor", "weight": "question"},
        {"estimator": "grpo", "spread": "none", "reward_method": "mean_logp"},
        {"estimator": "naive", "anchor": "reference", "weight": "only_positive"},
    ],
    "ppo": [{}, {"normalize": "std", "value_clip": 0.1, "gae_lambda": 0.9, "aggregation": "seq-mean-token-mean"}],
    "selfac": [
        {},
        {"literal": True, "td_grad": "residual", "terminal_target": "zero", "ratio": "token"},
        {"backup": "max", "baseline": "sibling_mean", "ratio": "turn_mean", "normalize": "whiten"},
        {"freeze_adv": True, "value_clip": 0.2, "terminal_target": "none", "discount": 0.8},
        {"gae_lambda": 0.5, "std_floor": 0.1},
        {"normalize": "lift"},
    ],
    "turn_ppo": [{}, {"ratio": "token", "normalize": "std", "value_clip": 0.2}, {"ratio": "turn_mean"}],
    "vineppo": [
        {},
        {"ratio": "turn", "normalize": "std", "discount": 0.9},
        {"ratio": "turn_mean", "normalize": "none"},
    ],
}
EVERY: dict[str, Algorithm[Any]] = {
    " ".join([name, *(str(v) if isinstance(v, str) else f"{k}={v}" for k, v in options.items() if k != "formula")])
    + (" token" if "formula" in options else ""): ALGORITHMS[name](**options)
    for name in sorted(ALGORITHMS)
    for options in VARIANTS.get(name, [{}])
}
each = pytest.mark.parametrize("algorithm", EVERY.values(), ids=EVERY)
Step = tuple[float, Tensor, Tensor]
"""Loss, and its gradients with respect to the log-probability and the value of every token there is."""


def with_kl(algorithm: Algorithm[Any]) -> Algorithm[Any]:
    """The same with a divergence in its loss, if it has that option."""
    return replace(algorithm, kl_coef=0.3) if hasattr(algorithm, "kl_coef") else algorithm  # type: ignore[type-var]


def annotate(w: World, root: Node, blank: float = 0.0) -> Node:
    """What judges and oracles add, whatever was paid: labels but for a share, verdicts, chances, few anchors."""
    for node in root.walk():
        if node.kind is Kind.ACTION:
            node.label = None if w.rng.random() < blank else w.rng.random() < 0.5
            node.invalid = len(node.tokens) == 1
            continue
        node.anchor = w.rng.choice("abc")
        node.success = None if node.children else w.rng.random() < 0.5
        node.oracle = node.continued = w.rng.random() if node.success is None else float(node.success)
    return root


def groups(w: World, trees: int = 4, blank: float = 0.1) -> list[Node]:
    """Trees of which nodes are shared by several episodes, with all that an algorithm may ask for."""
    return [annotate(w, counted(w, w.tree()), blank) for _ in range(trees)]


def flat(w: World, outcomes: list[float], episodes: int = 1) -> Node:
    """A group of one-turn episodes with these rewards, and verdicts, labels and chances that agree with them."""
    root = Node(Kind.STATE, w.text(1), oracle=0.7, anchor="a")
    for paid in outcomes:
        action = Node(Kind.ACTION, w.text(2), reward=paid, label=paid > 0.5, count=episodes)
        won = paid > 0.5
        root.add(action).add(Node(Kind.STATE, w.text(1), terminated=True, success=won, oracle=0.7 if won else 0.0))
    return root


def update(
    w: World, algorithm: Algorithm[Any], trees: list[Node], pieces: int = 1, *, same: bool = False, **change: Any
) -> Step:
    """One step whose every number is finite; ``same``: policy and critic have not moved since the credit."""
    batch = w.batch(trees, critic=algorithm.needs.critic)
    batch = replace(batch, **{"continued_S": batch.oracle_S, **change})  # any numbers will do
    budget = next(b for b in range(max(len(batch), 1), 0, -1) if len(cut(batch, b)) >= pieces)
    assert len(cut(batch, budget)) == pieces
    before_logp, before = w.numbers(same=True)
    logp, after = w.numbers(same)
    if not same:
        noise = torch.randn(w.tokens, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        after = (after.detach() + 0.3 * noise).requires_grad_()

    def model(part: Batch, logp: Tensor = logp, value: Tensor = after) -> Forward:
        new = w.forward(part, logp, value)
        mine = (
            None
            if new.value_S is None or not algorithm.needs.critic
            else torch.where(part.critic_S >= 0, new.value_S, 0)
        )
        return replace(new, value_S=mine, value_T=new.value_T if algorithm.needs.token_critic else None)

    credit = algorithm.credit(batch, forward_parts(lambda part: model(part, before_logp, before), batch, budget))
    loss = backward(model, batch, lambda new: algorithm.loss(batch, new, credit), budget)
    grads = [torch.zeros_like(x) if x.grad is None else x.grad for x in (logp, after)]
    adv_A = algorithm.action_advantage(batch, credit)
    assert loss.total.isfinite() and all(g.isfinite().all() for g in grads)
    assert all(map(math.isfinite, loss.stats.values())), loss.stats
    assert adv_A is None or (adv_A.shape == batch.state_A.shape and bool(adv_A.isfinite().all()))
    return float(loss.total.detach()), grads[0], grads[1]


def equal(ours: Step, theirs: Step) -> None:
    assert ours[0] == pytest.approx(theirs[0], abs=1e-11)
    for mine, other in zip(ours[1:], theirs[1:], strict=True):
        torch.testing.assert_close(mine, other, atol=1e-11, rtol=1e-9)


def differ(ours: Step, theirs: Step) -> bool:
    return not torch.allclose(ours[1], theirs[1], atol=1e-6, rtol=0)
