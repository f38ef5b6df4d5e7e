"""The algorithm's interface: two functions of a batch, what they need, and what the rollout asks.

Invariant: an algorithm sees token trees (`Batch`) and the actor-critic's numbers for them (`Forward`), nothing else.
Its fields are its hyper-parameters; it keeps no state between calls.

Legend of the shape suffixes: T tokens, A actions, S states, L leaves = episodes.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import torch

from agents.rollout.forking.settings import ForkPoint as ForkPoint
from agents.rollout.forking.settings import Sampling as Sampling
from agents.tree import Batch, Forward

if TYPE_CHECKING:
    from torch import Tensor

Credit = TypeVar("Credit")


@dataclass(frozen=True)
class Loss:
    """What `Algorithm.loss` returns."""

    total: Tensor
    """Scalar to minimise, with its graph."""
    stats: dict[str, float]
    """Plain numbers for the log: ``policy``, ``clip_fraction`` and whatever else the algorithm has to tell."""


@dataclass(frozen=True)
class Needs:
    """What an algorithm needs besides the trees. Programs provide it, or refuse the run in one line."""

    critic: bool = False
    """Values of states: the critic prompt is packed under every state, and `Forward.value_S` is there."""
    token_critic: bool = False
    """Values of tokens, `Forward.value_T`, from a critic that shares no trained parameter with the policy."""
    judge: bool = False
    """A judge's label of every action, `Batch.label_A`; the algorithm is then a `JudgedAlgorithm`."""
    oracle: bool = False
    """The environment's own chance of success in every state, `Batch.oracle_S`."""
    reference: bool = False
    """Log-probabilities of the reference policy, `Batch.ref_logp_T`."""
    search: bool = False
    """It can learn from a search tree, in which most states were given up and never played to an end."""
    replay: bool = False
    """Its critic can learn alone, from episodes of earlier updates: `Algorithm.critic_only`."""
    separate_passes: bool = False
    """Every turn and every value is encoded on its own with its whole prefix; the same numbers, only slower."""


@dataclass(frozen=True)
class ValueMeaning:
    """What a critic's values estimate."""

    discount: float = 1.0
    """Worth of a reward one turn later."""
    verifies: bool = False
    """Whether the value after an answer learned the outcome, so that it can verify finished work."""


class Algorithm(ABC, Generic[Credit]):
    """A rule that turns episodes into a loss. Subclasses are frozen dataclasses; no method inherits from another."""

    @property
    def needs(self) -> Needs:
        return Needs()

    @property
    def values(self) -> ValueMeaning:
        """What the critic's values estimate, where there is a critic."""
        return ValueMeaning()

    @property
    def sampling(self) -> Sampling:
        return Sampling()

    def branch(self, fork: ForkPoint, rng: random.Random) -> int:
        """How many extra actions to sample at this state while rolling out."""
        return 0

    @abstractmethod
    def credit(self, batch: Batch, old: Forward) -> Credit:
        """Group statistics, advantages and weights: once per batch, without gradient.

        ``old`` is the trainer's own forward before the first update; ``batch.old_logp_T`` are its log-probabilities.
        """

    @abstractmethod
    def loss(self, batch: Batch, new: Forward, credit: Credit, /) -> Loss:
        """The loss over the whole ``batch`` under the current parameters: once per epoch, with gradient."""

    def critic_only(self, batch: Batch, new: Forward) -> Tensor | None:
        """The critic's part of the loss, with targets from ``new``, for `Needs.replay`; None without a critic."""
        return None

    def action_advantage(self, batch: Batch, credit: Credit) -> Tensor | None:
        """adv_A: what each action is credited with before the first update, for the record; None: no such number."""
        return None


class JudgedAlgorithm(Algorithm[Credit]):
    """An algorithm whose actions a judge labels before the update."""

    without_judge: ClassVar[str] = ""
    """The flag that switches the judge off, without dashes and prefix; empty where there is none."""

    def asked(self, return_L: Tensor, tree_L: Tensor, visit_L: Tensor) -> Tensor:
        """asked_L: the finished episodes that the judge labels, of all that an update played.

        ``tree_L`` numbers their tasks; ``visit_L`` is how often each task came before.
        """
        return torch.ones_like(tree_L, dtype=torch.bool)

    def judge_score(self, return_L: Tensor, tree_L: Tensor) -> Tensor:
        """score_L: how each episode went, as the judge reads it; positive is good."""
        return (return_L - 0.5) * 2


Function = TypeVar("Function", bound=Callable[..., Any])


def without_gradient(function: Function) -> Function:
    """``torch.no_grad`` as a decorator that imports torch when the function is called, not when it is defined."""

    @wraps(function)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        with torch.no_grad():
            return function(*arguments, **named)

    return wrapped  # type: ignore[return-value]


def require(holds: bool, message: str) -> None:
    """Raises ValueError with ``message`` unless ``holds``; for hyper-parameters."""
    if not holds:
        raise ValueError(message)


def require_choice(value: str, kind: type[StrEnum]) -> None:
    """Raises ValueError, naming the choices, unless ``value`` is one of ``kind``."""
    choices = [choice.value for choice in kind]
    require(value in choices, f"{kind.__name__} must be one of {', '.join(choices)}, not {value!r}")


def reference_logp(batch: Batch) -> Tensor:
    """The reference's log-probabilities. Raises ValueError when the batch has none."""
    if batch.ref_logp_T is None:
        raise ValueError("a KL coefficient needs the log-probabilities of the reference: the batch has no ref_logp_T")
    return batch.ref_logp_T


def floats(**stats: Tensor | float) -> dict[str, float]:
    """Plain, detached numbers for `Loss.stats`."""
    return {name: float(x.detach()) if isinstance(x, torch.Tensor) else x for name, x in stats.items()}
