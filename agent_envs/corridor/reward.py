"""The reward of the corridor, and the exact value of a state for an agent of known skill."""

from functools import lru_cache

import numpy as np


def reward(arrived: bool) -> float:
    """1 on arrival, and nothing before."""
    return float(arrived)


@lru_cache(maxsize=4096)
def chances(blank: tuple[bool, ...], pulls: int, skill: float) -> np.ndarray:
    """Chance to arrive, by (pulls left, door): rows 0..pulls, columns 0..doors.

    V(t, d) = V(t - 1, d + 1) at a door without a sign, and elsewhere
    V(t, d) = skill V(t - 1, d + 1) + (1 - skill) V(t - 1, max(d - 1, 0)).
    """
    doors = len(blank)
    on = np.where(blank, 1.0, skill)
    chance = np.zeros((pulls + 1, doors + 1))
    chance[:, doors] = 1.0
    for t in range(1, pulls + 1):
        before = chance[t - 1, np.maximum(np.arange(doors) - 1, 0)]
        chance[t, :doors] = on * chance[t - 1, 1:] + (1 - on) * before
    chance.setflags(write=False)
    return chance
