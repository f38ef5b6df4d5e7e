"""Recursions along the tree: which turns count, TD(m) targets and advantages. On a chain they are the textbook ones.

Invariant: every mean over the actions tried in a state is weighted by `Batch.count_A`, and an action whose count is 0
has no say. A ``end_S`` is the value of a state in which nothing was tried: 0 where the episode ended.

Where sharing must change nothing at all, recursions run over `TurnRows`: the turns of the batch in
which nothing is shared.

Legend of the shape suffixes: M steps of look-ahead, T tokens, A actions, S states, L leaves = episodes, P rows = turns
of single episodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import torch

from agents.tree import Batch

if TYPE_CHECKING:
    from torch import Tensor


class Backup(StrEnum):
    """What a state is worth, given what the actions tried in it are worth."""

    MEAN = "mean"
    MAX = "max"


def scored(batch: Batch) -> Batch:
    """The batch with float64 rewards, and with count 0 on turns of which only faulted or unscored episodes remain.

    An episode is unscored when a reward on its path is not finite. Where all that took an action went on (tries next =
    count), it loses those that broke; where a search tried more or fewer, it counts in full while one try stands.
    """
    broken_L = batch.fault_L | ~batch.return_L.isfinite()
    reward_A = torch.nan_to_num(batch.reward_A.double(), posinf=0.0, neginf=0.0)
    if not broken_L.any():
        return replace(batch, reward_A=reward_A)
    stands_S = torch.ones_like(batch.prev_S).index_fill(0, batch.leaf_L[broken_L], 0)
    tried_A = turns_in(batch)[batch.next_A]
    first_A = count_A = batch.count_A * stands_S[batch.next_A]
    for _ in range(batch.turns):
        kept_A = turns_in(replace(batch, count_A=count_A))[batch.next_A]
        inner_A = torch.where(tried_A == batch.count_A, kept_A, batch.count_A * (kept_A > 0))
        count_A = torch.where(tried_A > 0, inner_A, first_A)
    return replace(batch, reward_A=reward_A, count_A=count_A)


def turns_in(batch: Batch) -> Tensor:
    """turns_S: how many turns were taken in each state."""
    return torch.zeros_like(batch.prev_S).index_add(0, batch.state_A, batch.count_A)


def backup(batch: Batch, x_A: Tensor, otherwise_S: Tensor, how: Backup) -> Tensor:
    """x_S: the mean (or the maximum) over the actions tried in each state, ``otherwise_S`` where none was."""
    if how == Backup.MEAN:
        return batch.expect(x_A, otherwise_S)
    tried_A = batch.count_A > 0
    empty_S = torch.full_like(otherwise_S, -torch.inf)
    best_S = empty_S.scatter_reduce(0, batch.state_A[tried_A], x_A[tried_A], "amax")
    return torch.where(best_S > -torch.inf, best_S, otherwise_S)


def td_targets(
    batch: Batch, value_S: Tensor, end_S: Tensor, discount: float, steps: int, how: Backup = Backup.MEAN
) -> Tensor:
    """T_MS for m = 1..steps: T_0 = V and T_m(s) = mean over the actions tried in s of [r + discount T_{m-1}(s')].

    A state in which nothing was tried has the target ``end_S`` at every m >= 1. On a chain of n turns this is
    T^m_k = sum_{j<h} discount^j r_{k+j} + discount^h V_{k+h} with h = min(m, n - k) [Self-AC, TD(1)..TD(5)].
    """
    targets = [value_S]
    for _ in range(steps):
        targets.append(backup(batch, batch.reward_A + discount * targets[-1][batch.next_A], end_S, how))
    return torch.stack(targets[1:])


def turn_advantage(
    batch: Batch, value_S: Tensor, end_S: Tensor, discount: float, gae_lambda: float, how: Backup = Backup.MEAN
) -> Tensor:
    """A_A = delta + discount lambda E[A of the next turn] with delta = r + discount V(s') - V(s).

    GAE [Schulman et al. 2016] on turns; lambda = 1 is the return minus the value, R_k - V_k. V(s') is ``end_S`` where
    nothing was tried.
    """
    next_S = torch.where(turns_in(batch) > 0, value_S, end_S)
    delta_A = batch.reward_A + discount * next_S[batch.next_A] - value_S[batch.state_A]
    adv_A, nothing_S = delta_A, torch.zeros_like(value_S)
    for _ in range(batch.turns - 1 if gae_lambda and discount else 0):
        adv_A = delta_A + discount * gae_lambda * backup(batch, adv_A, nothing_S, how)[batch.next_A]
    return adv_A


@dataclass(frozen=True)
class TurnRows:
    """Every turn of every episode, also of those that share it: an action and a leaf below it, in depth-first order."""

    action_P: Tensor
    leaf_P: Tensor
    next_P: Tensor
    """The row of the same episode's next turn; -1 at its last."""
    count_P: Tensor
    """How many episodes the row stands for."""
    turns: int
    """Turns of the longest episode."""

    @classmethod
    def of(cls, batch: Batch, count_L: Tensor) -> TurnRows:
        """The rows of the batch, a leaf standing for ``count_L`` episodes."""
        span_A = batch.hi_A - batch.lo_A
        first_A = span_A.cumsum(0) - span_A
        action_P = torch.repeat_interleave(torch.arange(span_A.numel(), device=span_A.device), span_A)
        row_P = torch.arange(action_P.numel(), device=span_A.device)
        leaf_P = batch.lo_A[action_P] + row_P - first_A[action_P]
        before_P = batch.prev_S[batch.state_A[action_P]]
        later_P = before_P >= 0
        parent_P = first_A[before_P[later_P]] + leaf_P[later_P] - batch.lo_A[before_P[later_P]]
        next_P = torch.full_like(row_P, -1).index_put((parent_P,), row_P[later_P])
        turns = int(torch.bincount(leaf_P).max()) if row_P.numel() else 0
        return cls(action_P, leaf_P, next_P, count_L[leaf_P], turns)

    def rest(self, x_P: Tensor, discount: float) -> Tensor:
        """y_P = x_P + discount * y of the same episode's next turn: G = r + discount G, or GAE from its deltas."""
        y_P = x_P
        for _ in range(self.turns - 1 if discount else 0):
            y_P = x_P + discount * torch.cat([y_P, y_P.new_zeros(1)])[self.next_P]
        return y_P

    def per_action(self, x_P: Tensor, actions: int) -> Tensor:
        """x_A: the sum over the rows of each of the batch's ``actions``."""
        return x_P.new_zeros(actions).index_add(0, self.action_P, x_P)


def bi_level_gae(
    reward_T: Tensor,
    value_T: Tensor,
    ends: Sequence[int],
    discount: float,
    gae_lambda: float,
    turn_discount: float,
) -> Tensor:
    """A_T of one episode's sampled tokens: GAE over turns, whose returns are then the rewards of GAE over tokens.

    ``ends`` are the places of each turn's last token, ascending; tokens after the last of them have no turn and A = 0.
    Turns: A_k = delta_k + turn_discount lambda A_{k+1}, delta_k = R_k + turn_discount V_{k+1} - V_k with R_k the sum of
    the turn's rewards and V_k the value at its end. Tokens: GAE with ``discount`` within each turn alone, with
    A_k + V_k paid at its end [VAGEN, RAGEN].
    """
    adv_T = torch.zeros_like(value_T)
    later, later_value = value_T.new_zeros(()), value_T.new_zeros(())
    for start, end in reversed(list(zip([0, *(e + 1 for e in ends)], ends, strict=False))):
        delta = reward_T[start : end + 1].sum() + turn_discount * later_value - value_T[end]
        later, later_value = delta + turn_discount * gae_lambda * later, value_T[end]
        adv_T[end] = later  # paid A_k + V_k, worth V_k, and nothing comes after it in this turn
        for t in range(end - 1, start - 1, -1):
            adv_T[t] = discount * value_T[t + 1] - value_T[t] + discount * gae_lambda * adv_T[t + 1]
    return adv_T
