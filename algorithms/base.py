"""What an algorithm is: two functions of a batch, and the few questions that the rollout asks it.

Invariant: an algorithm sees token trees (`Batch`) and the actor-critic's numbers for them (`Forward`), nothing else.
Its fields are its hyper-parameters; it keeps no state between calls.

Legend of the shape suffixes: T tokens, A actions, S states, L leaves = episodes.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from agents.rollout.forking.rule import ForkPoint as ForkPoint
from agents.rollout.forking.rule import Sampling as Sampling
from agents.tree import Batch, Forward

Credit = TypeVar("Credit")


@dataclass(frozen=True)
class Loss:
    """What `Algorithm.loss` returns."""

    total: Tensor
    """Scalar to minimise, with its graph."""
    stats: dict[str, float]
    """Plain numbers for the log: ``policy``, ``clip_fraction`` and whatever else the algorithm has to tell."""


class Algorithm(ABC, Generic[Credit]):
    """A rule that turns episodes into a loss. Subclasses are frozen dataclasses; none inherits from another."""

    critic: ClassVar[bool] = False
    """True: the critic prompt is packed under every state and `Forward.value_S` is there."""
    token_critic: ClassVar[bool] = False
    """True: a critic that shares no trained parameter with the policy values every token, `Forward.value_T`."""
    per_turn: ClassVar[bool] = False
    """True: every turn and every value is encoded on its own with its whole prefix; the same numbers, only slower."""
    judged: ClassVar[bool] = False
    """True: every action gets a judge's label before the update."""

    searches: ClassVar[bool] = False
    """True: it learns from a search tree, in which most states were given up and never played to an end. It has a
    critic, and a field ``discount`` that says what its values mean."""

    @property
    def needs_reference(self) -> bool:
        """True: `Batch.ref_logp_T` must be filled, as for a weight ``kl_coef`` of the divergence from the reference."""
        return bool(getattr(self, "kl_coef", 0) > 0)

    @property
    def needs_judge(self) -> bool:
        """True: a judge must label actions (`Batch.label_A`)."""
        return self.judged

    @property
    def needs_oracle(self) -> bool:
        """True: the environment must tell what it knows of every state (`Batch.oracle_S`)."""
        return False

    @property
    def sampling(self) -> Sampling:
        return Sampling()

    def branch(self, fork: ForkPoint, rng: random.Random) -> int:
        """How many extra actions to sample at this state while rolling out."""
        return 0

    def asked(self, return_L: Tensor, tree_L: Tensor, visit_L: Tensor) -> Tensor:
        """asked_L: the finished episodes that the judge is asked about, of all that an update played.

        ``tree_L`` numbers their tasks; ``visit_L`` says how often each task came before.
        """
        return torch.ones_like(tree_L, dtype=torch.bool)

    def judge_score(self, return_L: Tensor, tree_L: Tensor) -> Tensor:
        """score_L: what the judge is told of how each episode went; a positive one means well."""
        return (return_L - 0.5) * 2

    @abstractmethod
    def credit(self, batch: Batch, old: Forward) -> Credit:
        """Group statistics, advantages and weights: once per batch, without gradient.

        ``old`` is the trainer's own forward before the first update; ``batch.old_logp_T`` are its log-probabilities.
        """

    @abstractmethod
    def loss(self, batch: Batch, new: Forward, credit: Credit, /) -> Loss:
        """The loss over the whole ``batch`` under the current parameters: once per epoch, with gradient."""

    def critic_only(self, batch: Batch, new: Forward) -> Tensor | None:
        """The critic's part of the loss, its targets from ``new``: what replayed episodes teach; None: nothing."""
        return None

    def action_advantage(self, batch: Batch, credit: Credit) -> Tensor | None:
        """adv_A: what each action is credited with before the first update, for the record; None: no such number."""
        return None


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
    return {name: float(x.detach()) if isinstance(x, Tensor) else x for name, x in stats.items()}
