"""The naive actor-critic: Self-AC's formula, every turn and every value encoded on its own with its whole prefix.

A control of cost, not a method: loss and gradient are those of Self-AC, from 2 n + 1 rows of tokens for n turns where
Self-AC needs one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agents.tree import Batch, Forward, Tensor
from algorithms.base import Algorithm, Loss, Needs, Sampling
from algorithms.credit_kind import CreditKind
from algorithms.selfac import SelfAC, TurnCredit, TurnMoments


@dataclass(frozen=True)
class NaiveAC(Algorithm[TurnCredit]):
    """A control: Self-AC without the shared pass."""

    formula: SelfAC = SelfAC()  # noqa: RUF009 (it is frozen)
    """The loss."""

    @property
    def needs(self) -> Needs:
        return replace(self.formula.needs, search=False, separate_passes=True)

    @property
    def credit_kind(self) -> CreditKind:
        return self.formula.credit_kind

    @property
    def sampling(self) -> Sampling:
        return self.formula.sampling

    def credit(self, batch: Batch, old: Forward) -> TurnCredit:
        return self.formula.credit(batch, old)

    def loss(self, batch: Batch, new: Forward, credit: TurnCredit, /) -> Loss:
        return self.formula.loss(batch, new, credit)

    def moments(self, batch: Batch, credit: TurnCredit) -> TurnMoments:
        return self.formula.moments(batch, credit)

    def scaled(self, batch: Batch, credit: TurnCredit, over: TurnMoments) -> TurnCredit:
        return self.formula.scaled(batch, credit, over)

    def critic_only(self, batch: Batch, new: Forward) -> Tensor:
        return self.formula.critic_only(batch, new)

    def action_advantage(self, batch: Batch, credit: TurnCredit) -> Tensor:
        return self.formula.action_advantage(batch, credit)
