"""What the tests of ADCA-GRPO share: judged trees, and the advantages of its source, written down as a loop."""

import math
from typing import Any

import pytest
import torch
from algorithm_trees import World, counted
from torch import Tensor

from agents.tree import Batch, Kind, Node
from algorithms.adca import ADCA, StepCredit

EVERY = [
    {},
    {"alpha": 1.0, "beta": 0.5},
    {"equal_trajectory_weight": False, "alpha": 0.7},
    {"do_batch_norm": False, "fix_base": 1.0, "alpha": 0.5},
    {"orm_distribution": "all_steps"},
    {"orm_distribution": "only_prm"},
    {"enable_length_normalization": True, "alpha": 0.5},
    {"suffix": False, "alpha": 0.5},
    {"prm_scheme": "allocation", "alpha": 0.6},
    {"prm_scheme": "allocation", "equal_trajectory_weight": False, "orm_distribution": "all_steps"},
    {"prm_scheme": "allocation", "pos_unconsistent_scale": 0.0, "neg_unconsistent_scale": 0.7},
    {"aggregation": "seq-mean-token-mean", "clip_low": 0.1, "clip_high": 0.3, "dual_clip": 1.5, "kl_coef": 0.2},
    {"skip_type": "skip_all_neg", "alpha": 1.0},
]
each = pytest.mark.parametrize("options", EVERY, ids=[",".join(map(str, o.values())) or "default" for o in EVERY])


def judge(w: World, root: Node, blank: float = 0.0) -> Node:
    """Labels for every action, but for a share of them; and verdicts that the returns do not tell."""
    for node in root.walk():
        if node.kind is Kind.ACTION:
            node.label = None if w.rng.random() < blank else w.rng.random() < 0.5
        elif not node.children:
            node.success = w.rng.random() < 0.5
    return root


def groups(w: World, trees: int = 3, blank: float = 0.0) -> list[Node]:
    return [judge(w, counted(w, w.tree()), blank) for _ in range(trees)]


def credit_of(w: World, algorithm: ADCA, trees: list[Node]) -> tuple[Batch, StepCredit]:
    batch = w.batch(trees, critic=False)
    return batch, algorithm.credit(batch, w.forward(batch, *w.numbers()))


def gradient(w: World, algorithm: Any, trees: list[Node]) -> tuple[float, Tensor]:
    """The loss, and its gradient with respect to the log-probability of every token there is."""
    logp, value = w.numbers()
    batch = w.batch(trees, critic=False)
    new = w.forward(batch, logp, value)
    loss = algorithm.loss(batch, new, algorithm.credit(batch, new))
    loss.total.backward()
    assert loss.total.isfinite() and logp.grad.isfinite().all() and all(map(math.isfinite, loss.stats.values()))
    return float(loss.total.detach()), logp.grad


def equal(ours: tuple[float, Tensor], theirs: tuple[float, Tensor], atol: float = 1e-12) -> None:
    assert ours[0] == pytest.approx(theirs[0], abs=atol)
    torch.testing.assert_close(ours[1], theirs[1], atol=atol, rtol=1e-9)


def chains(w: World, *episodes: tuple[str, float]) -> Node:
    """A group of episodes, each given as its labels ("gb?", one token a step) and what its last step is paid."""
    root = Node(Kind.STATE, w.text(1))
    for labels, paid in episodes:
        state = root
        for k, label in enumerate(labels):
            reward = paid if k == len(labels) - 1 else 0.0
            action = Node(Kind.ACTION, w.text(1), reward=reward, label={"g": True, "b": False, "?": None}[label])
            state = state.add(action).add(Node(Kind.STATE, ()))
        state.terminated, state.success = True, paid > 0.5
    return root


def adv(algorithm: ADCA, root: Node, w: World) -> list[float]:
    batch, credit = credit_of(w, algorithm, [root])
    return algorithm.action_advantage(batch, credit).tolist()


def advantages(algorithm: ADCA, episodes: list[list[tuple[Node, Node]]]) -> list[list[float]]:
    """A_k of every step of the episodes of one group."""
    returns = [sum(action.reward for action, _ in path) for path in episodes]
    won = [bool(path[-1][1].success) for path in episodes]
    raw: list[list[float] | None] = []
    for path, r, success in zip(episodes, returns, won, strict=True):
        labels = [action.label for action, _ in path]
        if None in labels and algorithm.skip_type == "skip_all_neg" and r <= 0:
            labels = [success] * len(labels)
        if None in labels:
            raw.append(None)
        elif algorithm.prm_scheme == "decouple":
            raw.append([algorithm.fix_base if label else -algorithm.fix_base for label in labels])
        else:
            other = algorithm.pos_unconsistent_scale if success else algorithm.neg_unconsistent_scale
            weights = [algorithm.consistent_scale if label == success else other for label in labels]
            whole = sum(weights)
            raw.append([(1 if success else -1) * x / whole if whole > 1e-8 else 0.0 for x in weights])

    judged = [xs for xs in raw if xs is not None]
    mean, std = 0.0, 1.0
    if judged and algorithm.equal_trajectory_weight:
        mean = sum(sum(xs) / len(xs) for xs in judged) / len(judged)
        std = math.sqrt(sum(sum((x - mean) ** 2 for x in xs) / len(xs) for xs in judged) / len(judged) + 1e-8)
    elif judged:
        flat = [x for xs in judged for x in xs]
        mean = sum(flat) / len(flat)
        std = max(1e-8, math.sqrt(sum((x - mean) ** 2 for x in flat) / len(flat)))
    out_mean = sum(returns) / len(returns)
    out_std = math.sqrt(sum((r - out_mean) ** 2 for r in returns) / len(returns))

    found = []
    for path, xs, r in zip(episodes, raw, returns, strict=True):
        n = len(path)
        o = (r - out_mean) / (out_std + 1e-12) if max(returns) - min(returns) > 1e-8 else 0.0
        same = max(map(max, judged)) - min(map(min, judged)) <= 1e-8 if judged else True
        if xs is None or (same and algorithm.do_batch_norm):
            z = [0.0] * n
        else:
            z = [(x - mean) / (std + 1e-12) for x in xs] if algorithm.do_batch_norm else xs
        step = []
        for j in range(n):
            c = algorithm.alpha * z[j]
            if algorithm.orm_distribution == "all_steps" or j == n - 1:
                c += algorithm.beta * o
            if algorithm.orm_distribution == "only_prm":
                c = z[j]
            step.append(c / math.sqrt(n) if algorithm.enable_length_normalization else c)
        found.append([sum(step[k:]) if algorithm.suffix else step[k] for k in range(n)])
    return found
