"""Recursions along the tree: which turns count, TD(m) targets and advantages. On a chain they are the textbook ones.

Invariant: every mean over the actions tried in a state is weighted by `Batch.count_A`, and an action whose count is 0
has no say. A ``end_S`` is the value of a state in which nothing was tried: 0 where the episode ended.

Where sharing must change nothing at all, recursions run over `TurnRows`: the turns of the batch in
which nothing is shared.

Legend of the shape suffixes: M steps of look-ahead, T tokens, A actions, S states, L leaves = episodes, P rows = turns
of single episodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

import torch

from agents.tree import Batch, Tensor


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
    actions: int
    """Actions of the batch."""

    @classmethod
    def of(cls, batch: Batch, count_L: Tensor) -> TurnRows:
        """The rows of the batch, a leaf standing for ``count_L`` episodes."""
        action_P, leaf_P = batch.pairs()
        span_A = batch.hi_A - batch.lo_A
        first_A = span_A.cumsum(0) - span_A
        row_P = torch.arange(action_P.numel(), device=span_A.device)
        before_P = batch.prev_S[batch.state_A[action_P]]
        later_P = before_P >= 0
        parent_P = first_A[before_P[later_P]] + leaf_P[later_P] - batch.lo_A[before_P[later_P]]
        next_P = torch.full_like(row_P, -1).index_put((parent_P,), row_P[later_P])
        turns = int(torch.bincount(leaf_P).max()) if row_P.numel() else 0
        return cls(action_P, leaf_P, next_P, count_L[leaf_P], turns, span_A.numel())

    def rest(self, x_P: Tensor, discount: float) -> Tensor:
        """y_P = x_P + discount * y of the same episode's next turn: G = r + discount G, or GAE from its deltas."""
        y_P = x_P
        for _ in range(self.turns - 1 if discount else 0):
            y_P = x_P + discount * torch.cat([y_P, y_P.new_zeros(1)])[self.next_P]
        return y_P

    def per_action(self, x_P: Tensor) -> Tensor:
        """x_A: the sum over the rows of each action."""
        return x_P.new_zeros(self.actions).index_add(0, self.action_P, x_P)

    def mean_per_action(self, x_P: Tensor) -> Tensor:
        """x_A: the mean over the episodes that took each action; 0 where none counts."""
        return self.per_action(x_P * self.count_P) / self.per_action(self.count_P).clamp_min(1)


@dataclass(frozen=True)
class Turns:
    """The turns that formulas along the tree run over, with where each stands in the batch's tree."""

    batch: Batch
    """Actions, states and leaves as these formulas see them; its tokens are those of the tree."""
    action_P: Tensor
    """The tree's action of each turn."""
    state_Q: Tensor
    """The tree's state of each state."""
    actions: int
    """Actions of the tree."""

    @classmethod
    def shared(cls, batch: Batch) -> Turns:
        """The tree's own: a turn of several episodes is one, worth the mean over what followed."""
        every = torch.arange(max(batch.state_A.numel(), batch.prev_S.numel()), device=batch.state_A.device)
        return cls(batch, every[: batch.state_A.numel()], every[: batch.prev_S.numel()], batch.state_A.numel())

    @classmethod
    def apart(cls, batch: Batch) -> Turns:
        """Every episode as a chain of its own: sharing the tree changes nothing at all."""
        rows = TurnRows.of(batch, batch.count_L * (~batch.fault_L & batch.return_L.isfinite()))
        turns, leaves = rows.action_P.numel(), batch.leaf_L.numel()
        row_P = torch.arange(turns, device=rows.action_P.device)
        last_P = rows.next_P < 0
        next_P = torch.where(last_P, turns + rows.leaf_P, rows.next_P)
        state_Q = torch.cat([batch.state_A[rows.action_P], batch.leaf_L])
        prev_Q = torch.full_like(state_Q, -1).index_put((next_P,), row_P)
        chains = replace(
            batch,
            state_A=row_P,
            next_A=next_P,
            reward_A=batch.reward_A[rows.action_P],
            count_A=rows.count_P,
            lo_A=rows.leaf_P,
            hi_A=rows.leaf_P + 1,
            prev_S=prev_Q,
            terminated_S=batch.terminated_S[state_Q],
            leaf_L=turns + torch.arange(leaves, device=row_P.device),
        )
        return cls(chains, rows.action_P, state_Q, batch.state_A.numel())

    def per_action(self, x_P: Tensor) -> Tensor:
        """x_A: the sum over the turns of each action of the tree."""
        return x_P.new_zeros(self.actions).index_add(0, self.action_P, x_P)

    def mean_per_action(self, x_P: Tensor) -> Tensor:
        """x_A: the mean over the episodes that took each action; 0 where none counts."""
        count_P = self.batch.count_A
        return self.per_action(x_P * count_P) / self.per_action(count_P).clamp_min(1)
