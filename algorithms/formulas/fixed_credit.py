"""Advantages of turns that stay what they were before the update, but for their scale.

Legend of the shape suffixes: A actions = turns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agents.tree import Batch, Tensor
from algorithms.formulas.maths import Moments


@dataclass(frozen=True)
class FixedCredit:
    """What a turn was worth before the update."""

    adv_A: Tensor
    count_A: Tensor
    """How many episodes took it; those that broke are not counted."""
    over: Moments | None = None
    """Of the whole update's advantages; None: this batch is all of it."""


class FixedAdvantages:
    """The parts of an `Algorithm` that follow from such a credit."""

    def moments(self, batch: Batch, credit: FixedCredit) -> Moments:
        return Moments.of(credit.adv_A, credit.count_A)

    def scaled(self, batch: Batch, credit: FixedCredit, over: Moments) -> FixedCredit:
        return replace(credit, over=over)

    def action_advantage(self, batch: Batch, credit: FixedCredit) -> Tensor:
        return credit.adv_A
