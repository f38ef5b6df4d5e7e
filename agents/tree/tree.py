"""The token tree: what an agent did on a task, and at the same time the training sample.

Invariant: the tokens on the path from a root to any node are exactly what the model read and wrote there; nothing is
ever decoded and encoded again. States and actions alternate as in a game tree; a critic prompt is a leaf chain that
hangs on the last token of a state and is never extended.

Legend of the shape suffixes (all in depth-first order): T tokens, A actions, S states, L leaves = episodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, TypeAlias

import torch

Tensor: TypeAlias = "torch.Tensor"
"""For annotations. Settings are shown without torch: a module that holds some reads nothing of it when imported."""


class Kind(StrEnum):
    """What a node holds: text the model reads, text it sampled, or the shadow prompt that asks for a value."""

    STATE = "state"
    ACTION = "action"
    CRITIC = "critic"


@dataclass
class Node:
    """One run of tokens of the tree. A chain of nodes is an episode, a root with G chains is a GRPO group.

    A state may be empty (nothing was observed); an action may not.
    """

    kind: Kind
    tokens: tuple[int, ...]
    children: list[Node] = field(default_factory=list)
    logp: tuple[float, ...] = ()
    """Actions: log-probability of each token, as sampled by the engine."""
    entropy: tuple[float, ...] = ()
    """Actions: entropy in nats of the distribution that each token was sampled from."""
    reward: float = 0.0
    """Actions: what the environment paid for it."""
    version: int = -1
    """Actions: the policy version that sampled it; -1 when no policy did (a demonstration)."""
    count: int = 1
    """Actions: how many episodes sampled it here; identical siblings are one node."""
    label: bool | None = None
    """Actions: a judge's GOOD (True) or BAD (False); None is "not judged or not parsed"."""
    invalid: bool = False
    """Actions: the environment could not read it, or refused it."""
    terminated: bool = False
    """States: the environment ended the episode here."""
    truncated: bool = False
    """States: a turn or token limit ended the episode here."""
    success: bool | None = None
    """States that end an episode: the environment's verdict, never derived from the reward."""
    fault: str | None = None
    """States that end an episode: what broke outside the model, or None."""
    anchor: str = ""
    """States: identity of the observation, equal where the agent saw the same thing."""
    oracle: float | None = None
    """States: the environment's own chance of success from here; None where it was not asked, or cannot tell."""
    continued: float | None = None
    """States: mean return of episodes that the policy played on from here; None where it played none."""

    def add(self, child: Node) -> Node:
        """Appends ``child`` and returns it. Raises ValueError where states and actions would not alternate."""
        if self.kind is Kind.CRITIC or self.kind is child.kind:
            raise ValueError(f"a {child.kind} node cannot follow a {self.kind} node")
        if child.kind is not Kind.STATE and not child.tokens:
            raise ValueError(f"a {child.kind} node needs at least one token")
        self.children.append(child)
        return child

    def walk(self) -> Iterator[Node]:
        """This node and all below it, depth first."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))


ROUNDING = 1e-6
"""A change of an oracle's value below this is none: any action would have done."""


def graft(root: Node, turns: Iterable[tuple[Node, Node]]) -> list[tuple[Node, Node]]:
    """Adds one episode, given as (action, next state) pairs, below ``root``, sharing what is already there.

    Returns the pairs of the tree that it now goes through.

    An action is shared when its tokens, its version, its reward and the observation it led to are equal; its ``count``
    then grows by one. An episode that ends where another goes on is kept apart.
    """
    state, path = root, []
    for action, following in turns:
        for twin in state.children:
            after = twin.children[0] if twin.children else None
            if (
                after is not None
                and twin.tokens == action.tokens
                and (twin.version, twin.reward, twin.label) == (action.version, action.reward, action.label)
                and after.tokens == following.tokens
                and (after.terminated, after.truncated, after.success, after.fault)
                == (following.terminated, following.truncated, following.success, following.fault)
            ):
                twin.count += action.count
                path.append((twin, after))
                state = after
                break
        else:
            state.add(action).add(following)
            path.append((action, following))
            state = following
    return path


@dataclass(frozen=True)
class Batch:
    """Trees laid out one after another in one row of T tokens, depth first. Index -1 means "none".

    The whole attention mask is one vector: a query q sees a key kv exactly when ``kv <= q < end_T[kv]``.
    """

    token_T: Tensor
    parent_T: Tensor
    """The token whose logits predict this one; -1 at a root. After a fork or a critic prompt it is not t - 1."""
    pos_T: Tensor
    """Depth in tokens: positions are used again after a critic prompt and in every branch."""
    end_T: Tensor
    """One past the last token of the subtree that hangs below this token."""
    action_T: Tensor
    """The action a token belongs to, -1 elsewhere."""
    old_logp_T: Tensor
    """Log-probability under the policy that the ratio is taken against; 0 where action_T is -1."""
    state_A: Tensor
    """The state an action was taken in."""
    next_A: Tensor
    """The state it led to."""
    reward_A: Tensor
    lo_A: Tensor
    hi_A: Tensor
    """Leaves lo_A:hi_A lie below the action."""
    label_A: Tensor
    """1 GOOD, 0 BAD, -1 unparsed or not judged."""
    count_A: Tensor
    version_A: Tensor
    prev_S: Tensor
    """The action that led to a state, -1 at a root."""
    last_S: Tensor
    """Row of the last token the agent read or wrote when it was in the state: it predicts the next action."""
    critic_S: Tensor
    """Row of the last token of the state's critic prompt, where its value is read; -1 without one."""
    terminated_S: Tensor
    truncated_S: Tensor
    anchor_S: tuple[str, ...]
    oracle_S: Tensor
    """The environment's own chance of success; NaN where it told none."""
    leaf_L: Tensor
    """The state in which an episode ended."""
    return_L: Tensor
    """Undiscounted sum of the rewards on the path."""
    success_L: Tensor
    """The environment's verdict: 1, 0, or -1 where there was none."""
    fault_L: Tensor
    count_L: Tensor
    tree_S: Tensor
    tree_A: Tensor
    tree_L: Tensor
    trees: int
    continued_S: Tensor | None = None
    """Mean return of episodes that the policy played on from the state; NaN where it played none."""
    ref_logp_T: Tensor | None = None
    """Log-probability under the reference policy (LoRA off), where an algorithm asks for it."""
    invalid_A: Tensor | None = None
    """Whether the environment refused the action; None in batches that were kept by version 0.1."""

    def __len__(self) -> int:
        return self.token_T.numel()

    def to(self, device: torch.device | str) -> Batch:
        """The same batch with every tensor on ``device``."""
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        moved: dict[str, Any] = {name: sent(x, device) for name, x in columns.items() if isinstance(x, torch.Tensor)}
        twin = replace(self, **moved)
        for name in ("action_rows", "valued_states"):
            vars(twin)[name] = sent(getattr(self, name), device)
        return twin

    @cached_property
    def action_rows(self) -> Tensor:
        """The rows of all tokens of actions."""
        return torch.nonzero(self.action_T >= 0).squeeze(1)

    @cached_property
    def valued_states(self) -> Tensor:
        """The states whose values are read in this row."""
        return torch.nonzero(self.critic_S >= 0).squeeze(1)

    @property
    def raw_tokens(self) -> int:
        """Tokens that training each episode on its own, without critic prompts, would have to encode."""
        depth_S = torch.where(self.last_S >= 0, self.pos_T[self.last_S] + 1, 0)
        return int((depth_S[self.leaf_L] * self.count_L).sum())

    def progress(self) -> Tensor:
        """progress_A: by how much an action raised the environment's own chance of success; NaN where it told none.

        0, and not a rounding error, where any action would have done.
        """
        rise_A = self.oracle_S[self.next_A] - self.oracle_S[self.state_A]
        return torch.where(rise_A.abs() < ROUNDING, 0.0, rise_A)

    # -- views: differentiable sums and means along the tree -----------------------------------------------------

    def per_action(self, x_T: Tensor) -> Tensor:
        """x_A: the sum over the tokens of each action."""
        mine = self.action_T >= 0
        return x_T.new_zeros(self.state_A.numel()).index_add(0, self.action_T[mine], x_T[mine])

    def final_tokens(self) -> Tensor:
        """token_A: the row of the last token of each action."""
        said_N = torch.nonzero(self.action_T >= 0).squeeze(1)
        return torch.zeros_like(self.state_A).scatter_reduce(0, self.action_T[said_N], said_N, "amax")

    def at_prompts(self, x_TD: Tensor) -> tuple[Tensor, Tensor]:
        """(x_ND, state_N): the rows at which values are read, and the states whose values they are."""
        return x_TD.index_select(0, self.critic_S[self.valued_states]), self.valued_states

    def to_tokens(self, x_A: Tensor) -> Tensor:
        """x_T: each action's number on its tokens, 0 elsewhere."""
        return torch.cat([x_A, x_A.new_zeros(1)])[self.action_T]  # index -1 is the 0 at the end, also without actions

    def pairs(self) -> tuple[Tensor, Tensor]:
        """Every (action, leaf below it) pair as two index vectors."""
        span_A = self.hi_A - self.lo_A
        action_P = torch.repeat_interleave(torch.arange(span_A.numel(), device=span_A.device), span_A)
        first_A = span_A.cumsum(0) - span_A
        leaf_P = self.lo_A[action_P] + torch.arange(action_P.numel(), device=span_A.device) - first_A[action_P]
        return action_P, leaf_P

    def per_episode(self, x_A: Tensor) -> Tensor:
        """x_L: the sum over the actions on each leaf's path."""
        action_P, leaf_P = self.pairs()
        return x_A.new_zeros(self.leaf_L.numel()).index_add(0, leaf_P, x_A[action_P])

    def sum_below(self, x_L: Tensor) -> Tensor:
        """x_A: the sum over the leaves below each action (not weighted by counts)."""
        action_P, leaf_P = self.pairs()
        return x_L.new_zeros(self.state_A.numel()).index_add(0, action_P, x_L[leaf_P])

    def below(self, x_L: Tensor) -> Tensor:
        """x_A: the mean over the episodes below each action, weighted by ``count_L``."""
        weight_L = self.count_L.to(x_L.dtype)
        return self.sum_below(x_L * weight_L) / self.sum_below(weight_L)

    def expect(self, x_A: Tensor, otherwise: Tensor) -> Tensor:
        """x_S: the mean over the actions tried in each state, weighted by ``count_A``; ``otherwise`` elsewhere."""
        weight_A = self.count_A.to(x_A.dtype)
        total_S = x_A.new_zeros(otherwise.numel()).index_add(0, self.state_A, x_A * weight_A)
        tries_S = x_A.new_zeros(otherwise.numel()).index_add(0, self.state_A, weight_A)
        return torch.where(tries_S > 0, total_S / tries_S.clamp_min(1), otherwise)

    def suffix_sum(self, x_A: Tensor, end_S: Tensor | None = None, discount: float = 1.0) -> Tensor:
        """y_A = x_A + discount * E[y of the actions tried next], ``end_S`` (default 0) where nothing was tried.

        On a chain this is the discounted sum of the rest of the episode, bootstrapped with ``end_S``.
        """
        y_S = x_A.new_zeros(self.prev_S.numel()) if end_S is None else end_S
        y_A = x_A
        for _ in range(self.turns):
            y_A = x_A + discount * self.expect(y_A, y_S)[self.next_A]
        return y_A

    @property
    def turns(self) -> int:
        """The number of actions on the longest path."""
        ones_A = torch.ones_like(self.reward_A)
        return int(self.per_episode(ones_A).max()) if self.leaf_L.numel() else 0


def sent(x: Tensor, device: torch.device | str) -> Tensor:
    """``x`` on ``device``. On its way from the CPU to a GPU it makes neither of them wait."""
    to_gpu = torch.device(device).type == "cuda" and x.device.type == "cpu"
    return x.pin_memory().to(device, non_blocking=True) if to_gpu else x.to(device)


@dataclass(frozen=True)
class Forward:
    """What the actor-critic computes for a batch.

    ``logp_T`` and ``entropy_T`` are 0 outside actions; ``value_S`` is None when no critic prompt was packed.
    """

    logp_T: Tensor
    entropy_T: Tensor
    value_S: Tensor | None = None
    value_T: Tensor | None = None
    """Of a critic that values tokens: what a path is worth once it was read up to this token."""
    read_SD: Tensor | None = None
    """What ``value_S`` was read from, without gradient; 0 where a state has no critic prompt. D: width of the model."""

    def detach(self) -> Forward:
        """The same numbers without their graph."""
        value_S, value_T = (None if x is None else x.detach() for x in (self.value_S, self.value_T))
        return Forward(self.logp_T.detach(), self.entropy_T.detach(), value_S, value_T, self.read_SD)

    def state_values(self, batch: Batch) -> Tensor | None:
        """value_S, of whichever critic there is; None without any."""
        return self.value_T[batch.last_S] if self.value_S is None and self.value_T is not None else self.value_S
