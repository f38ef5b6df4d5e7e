"""PPO's loss over turns, one by one, in which nothing is shared between actions."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from algorithm_trees import World
from torch import Tensor

from agents.tree import Node


def centre(algorithm: Any, mean: float) -> float:
    """What is taken off advantages with this mean, as the algorithm normalises them."""
    return {"whiten": mean, "lift": min(mean, 0.0)}.get(algorithm.normalize, 0.0)


def loss_over_turns(
    w: World, algorithm: Any, turns: Sequence[tuple[Node, float]], std_floor: float = 0.0
) -> tuple[float, Tensor]:
    """(loss, its gradient by log-probability) of actions with these advantages, scaled as the algorithm's settings say.

    The standard deviation is at least ``std_floor``.
    """
    each = [a for action, a in turns for _ in range(action.count)]
    mean = sum(each) / len(each)
    deviation = math.sqrt(max(sum((a - mean) ** 2 for a in each) / (len(each) - 1), std_floor**2) + 1e-8)
    logp, _ = w.numbers()
    total = torch.zeros((), dtype=torch.float64)
    for action, a in turns:
        scaled = a if algorithm.normalize == "none" else (a - centre(algorithm, mean)) / deviation
        gaps = [logp[t] - w.old[t] for t in action.tokens]
        if algorithm.ratio == "turn":
            gaps = [torch.stack(gaps).sum()]
        elif algorithm.ratio == "turn_mean":
            gaps = [torch.stack(gaps).mean()]
        for gap in gaps:
            rho = gap.exp()
            gain = torch.minimum(rho * scaled, rho.clamp(1 - algorithm.clip, 1 + algorithm.clip) * scaled)
            if scaled < 0:
                gain = torch.clamp(gain, min=algorithm.dual_clip * scaled)
            total = total - action.count * gain / len(gaps) / len(each)
    total.backward()
    return float(total.detach()), logp.grad
