"""Lays token trees out in one row.

Invariant: depth first, so the subtree of a token is the interval of rows from it to ``end_T``; a critic prompt comes
right after the state that it hangs under, before the state's actions. A value is read at the last token of the prompt,
so at that of the state itself where the prompt is empty.
"""

import math
from collections.abc import Container, Sequence
from dataclasses import fields
from typing import Any

import torch

from agents.tree.tree import Batch, Kind, Node


def pack(
    trees: Sequence[Node],
    critic_prompt: Sequence[int] | None = None,
    device: torch.device | str = "cpu",
    valued: Container[int] | None = None,
) -> Batch:
    """Lays ``trees`` (state roots) out in one row and hangs ``critic_prompt`` under every state; None asks no critic.

    With ``valued``, identities of nodes (``id``), it is under those states only. Raises ValueError when a root is not
    a non-empty state, or an action does not lead to exactly one state.
    """
    layout = _Layout(critic_prompt, valued)
    for index, root in enumerate(trees):
        if root.kind is not Kind.STATE or not root.tokens:
            raise ValueError(f"tree {index}: a root must be a state with at least one token")
        layout.add(root, index)
    return layout.batch(len(trees), device)


_FLOATS = frozenset({"old_logp_T", "reward_A", "oracle_S", "continued_S", "return_L"})
_BOOLS = frozenset({"invalid_A", "terminated_S", "truncated_S", "fault_L"})
"""Columns of a batch that are no integers."""


class _Layout:
    """Columns of a batch under construction, by their names there."""

    def __init__(self, critic_prompt: Sequence[int] | None, valued: Container[int] | None) -> None:
        self.critic_prompt, self.valued = critic_prompt, valued
        self.anchors: list[str] = []
        self.columns: dict[str, list] = {f.name: [] for f in fields(Batch) if f.name[-2:] in ("_T", "_A", "_S", "_L")}
        del self.columns["anchor_S"], self.columns["ref_logp_T"]
        self.token, self.pos, self.end = (self.columns[name] for name in ("token_T", "pos_T", "end_T"))
        self.leaf = self.columns["leaf_L"]

    def add(self, root: Node, tree: int) -> None:
        # An explicit stack: a search tree or a long episode may be deeper than Python's recursion limit.
        # entry: (node, row of the token before it, action index, reward so far, leaving?)
        stack: list[tuple[Node, int, int, float, bool]] = [(root, -1, -1, 0.0, False)]
        opened: dict[int, tuple[int, int]] = {}
        while stack:
            node, before, action, total, leaving = stack.pop()
            if leaving:
                start, stop = opened.pop(id(node))
                self.end[start:stop] = [len(self.token)] * (stop - start)
                if node.kind is Kind.ACTION:
                    self.columns["hi_A"][action] = len(self.leaf)
                continue
            if node.kind is Kind.ACTION:
                action = self._open_action(node, tree, before_action=action)
                total += node.reward
            start = len(self.token)
            last = self._tokens(node.tokens, before, action if node.kind is Kind.ACTION else -1, node.logp)
            opened[id(node)] = (start, len(self.token))
            stack.append((node, last, action, total, True))
            if node.kind is Kind.STATE:
                state = self._open_state(node, tree, last, action, total)
                stack.extend((child, last, state, total, False) for child in reversed(node.children))
            else:
                if len(node.children) != 1 or node.children[0].kind is not Kind.STATE:
                    raise ValueError("an action must lead to exactly one state")
                stack.append((node.children[0], last, action, total, False))

    def _row(self, **values: object) -> None:
        for name, value in values.items():
            self.columns[name].append(value)

    def _tokens(self, tokens: Sequence[int], before: int, action: int, logp: Sequence[float]) -> int:
        """Appends a run of tokens after row ``before``; returns the row of the last one (``before`` if none)."""
        if action >= 0 and len(logp) not in (0, len(tokens)):
            raise ValueError(f"an action of {len(tokens)} tokens has {len(logp)} log-probabilities")
        start, n = len(self.token), len(tokens)
        if not n:
            return before
        depth = self.pos[before] + 1 if before >= 0 else 0
        self.token += tokens
        self.columns["parent_T"] += [before, *range(start, start + n - 1)]
        self.pos += range(depth, depth + n)
        self.end += [0] * n
        self.columns["action_T"] += [action] * n
        self.columns["old_logp_T"] += logp if action >= 0 and logp else [0.0] * n
        return start + n - 1

    def _open_action(self, node: Node, tree: int, before_action: int) -> int:
        self._row(
            state_A=before_action,  # for an action the stack carries the index of its state
            next_A=-1,
            reward_A=node.reward,
            lo_A=len(self.leaf),
            hi_A=-1,
            invalid_A=node.invalid,
            label_A=-1 if node.label is None else int(node.label),
            count_A=node.count,
            version_A=node.version,
            tree_A=tree,
        )
        return len(self.columns["state_A"]) - 1

    def _open_state(self, node: Node, tree: int, last: int, action: int, total: float) -> int:
        state = len(self.anchors)
        if action >= 0:
            self.columns["next_A"][action] = state
        critic = -1
        if self.critic_prompt is not None and (self.valued is None or id(node) in self.valued):
            start = len(self.token)
            critic = self._tokens(self.critic_prompt, last, -1, ())
            self.end[start:] = [len(self.token)] * len(self.critic_prompt)
        self.anchors.append(node.anchor)
        self._row(
            prev_S=action,
            last_S=last,
            critic_S=critic,
            terminated_S=node.terminated,
            truncated_S=node.truncated,
            oracle_S=math.nan if node.oracle is None else node.oracle,
            continued_S=math.nan if node.continued is None else node.continued,
            tree_S=tree,
        )
        if not node.children:
            self._row(
                leaf_L=state,
                return_L=total,
                success_L=-1 if node.success is None else int(node.success),
                fault_L=node.fault is not None,
                count_L=self.columns["count_A"][action] if action >= 0 else 1,
                tree_L=tree,
            )
        return state

    def batch(self, trees: int, device: torch.device | str) -> Batch:
        types = dict.fromkeys(_FLOATS, torch.float32) | dict.fromkeys(_BOOLS, torch.bool)
        tensors: dict[str, Any] = {
            name: torch.tensor(column, dtype=types.get(name, torch.long)) for name, column in self.columns.items()
        }
        return Batch(**tensors, anchor_S=tuple(self.anchors), trees=trees).to(device)
