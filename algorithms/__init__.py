"""Formulas only: an algorithm turns token trees into a loss. Adding one is a file and a line in `ALGORITHMS`."""

from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import Any

from algorithms import plugins
from algorithms.adca import ADCA
from algorithms.arpo import ARPO
from algorithms.base import Algorithm, ForkPoint, Loss, Sampling
from algorithms.controls.exact_critic import ExactCritic
from algorithms.controls.naive_ac import NaiveAC
from algorithms.gigpo import GiGPO
from algorithms.grpo import GRPO
from algorithms.pacs import PACS
from algorithms.ppo import PPO
from algorithms.selfac import SelfAC
from algorithms.turn_ppo import TurnPPO

ALGORITHMS: dict[str, type[Algorithm[Any]]] = {
    "adca": ADCA,
    "arpo": ARPO,
    "exact_critic": ExactCritic,
    "gigpo": GiGPO,
    "grpo": GRPO,
    "naive_ac": NaiveAC,
    "pacs": PACS,
    "ppo": PPO,
    "selfac": SelfAC,
    "turn_ppo": TurnPPO,
}
ENTRY_POINTS = "turnwise.algorithms"
"""Entry-point group by which other packages add algorithms: ``name = "module:Class"``."""


def algorithm_class(name: str) -> type[Algorithm[Any]]:
    """The algorithm called ``name``, ours or another package's. Raises ValueError when it is unknown or broken."""
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    others = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name in others:
        return plugins.load(others[name])
    names = sorted({*ALGORITHMS, *others})
    close = get_close_matches(name, names, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise ValueError(f"unknown algorithm {name!r}; there are {', '.join(names)}{hint}")


__all__ = ["ALGORITHMS", "ENTRY_POINTS", "Algorithm", "ForkPoint", "Loss", "Sampling", "algorithm_class"]
