"""Formulas only: an algorithm turns token trees into a loss. Adding one is a file and a line in `REGISTRY`."""

from collections.abc import Iterator, Mapping
from typing import Any

from agent_envs.plugins import Registry, check_defaults
from algorithms.base import Algorithm, ForkPoint, JudgedAlgorithm, Loss, Needs, Sampling, ValueMeaning

ENTRY_POINTS = "turnwise.algorithms"
"""Entry-point group by which other packages add algorithms: ``name = "module:Class"``."""


def _check(found: Any, who: str) -> None:
    """Raises ValueError unless ``found`` can be used as one of ours."""
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise ValueError(f"{who} is not a subclass of algorithms.Algorithm")
    parameters = vars(found).get("__dataclass_params__")
    if parameters is None or not parameters.frozen:
        raise ValueError(f"{who} is not a frozen dataclass: write @dataclass(frozen=True) above it")
    if found.__abstractmethods__:
        raise ValueError(f"{who} lacks {' and '.join(sorted(found.__abstractmethods__))}")
    check_defaults(found, who)


REGISTRY: Registry[type[Algorithm[Any]]] = Registry(
    kind="algorithm",
    group=ENTRY_POINTS,
    builtin={
        "adca": "algorithms.adca:ADCA",
        "arpo": "algorithms.arpo:ARPO",
        "exact_critic": "algorithms.controls.exact_critic:ExactCritic",
        "gigpo": "algorithms.gigpo:GiGPO",
        "grpo": "algorithms.grpo:GRPO",
        "naive_ac": "algorithms.controls.naive_ac:NaiveAC",
        "pacs": "algorithms.pacs:PACS",
        "ppo": "algorithms.ppo:PPO",
        "selfac": "algorithms.selfac:SelfAC",
        "turn_ppo": "algorithms.turn_ppo:TurnPPO",
        "vineppo": "algorithms.vineppo:VinePPO",
    },
    check=_check,
)


class _Ours(Mapping[str, type[Algorithm[Any]]]):
    """Our algorithms by name; each is imported when it is looked up."""

    def __getitem__(self, name: str) -> type[Algorithm[Any]]:
        if name not in REGISTRY.builtin:
            raise KeyError(name)
        return REGISTRY.get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(REGISTRY.builtin)

    def __len__(self) -> int:
        return len(REGISTRY.builtin)


ALGORITHMS: Mapping[str, type[Algorithm[Any]]] = _Ours()


def algorithm_class(name: str) -> type[Algorithm[Any]]:
    """The algorithm called ``name``, ours or another package's. Raises ValueError when it is unknown or broken."""
    return REGISTRY.get(name)


__all__ = [
    "ALGORITHMS",
    "ENTRY_POINTS",
    "REGISTRY",
    "Algorithm",
    "ForkPoint",
    "JudgedAlgorithm",
    "Loss",
    "Needs",
    "Sampling",
    "ValueMeaning",
    "algorithm_class",
]
