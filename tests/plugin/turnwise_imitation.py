"""Imitate the episodes that succeeded [STaR, arXiv 2203.14465]."""

from dataclasses import dataclass

from torch import Tensor

from agents.tree import Batch, Forward
from algorithms import Algorithm, Loss, Sampling
from algorithms.base import floats, require


@dataclass(frozen=True)
class Imitation(Algorithm[Tensor]):
    """loss = - mean of log pi over the sampled tokens of the episodes that succeeded."""

    group: int = 4
    """Episodes played per task."""

    def __post_init__(self) -> None:
        require(self.group >= 1, f"group must be at least 1, not {self.group}")

    @property
    def sampling(self) -> Sampling:
        return Sampling(group=self.group)

    def credit(self, batch: Batch, old: Forward) -> Tensor:
        """won_A: how many of the episodes that took an action succeeded."""
        won_L = (batch.success_L == 1) & ~batch.fault_L
        return batch.sum_below((won_L * batch.count_L).double())

    def loss(self, batch: Batch, new: Forward, won_A: Tensor, /) -> Loss:
        won_T = batch.to_tokens(won_A)
        policy = -(won_T * new.logp_T).sum() / won_T.sum().clamp_min(1)
        return Loss(policy, floats(policy=policy, imitated_tokens=won_T.sum()))

    def action_advantage(self, batch: Batch, won_A: Tensor) -> Tensor:
        return won_A / batch.count_A.clamp_min(1)
