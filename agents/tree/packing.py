"""Lays token trees out in one row.

Invariant: depth first, so the subtree of a token is the interval of rows from it to ``end_T``; a critic prompt comes
right after the state that it hangs under, before the state's actions. A value is read at the last token of the prompt,
so at that of the state itself where the prompt is empty.
"""

import math
from collections.abc import Container, Sequence

import torch
from torch import Tensor

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


class _Layout:
    """Columns of a batch under construction."""

    def __init__(self, critic_prompt: Sequence[int] | None, valued: Container[int] | None) -> None:
        self.critic_prompt, self.valued = critic_prompt, valued
        self.token: list[int] = []
        self.parent: list[int] = []
        self.pos: list[int] = []
        self.end: list[int] = []
        self.action: list[int] = []
        self.logp: list[float] = []
        self.A: dict[str, list] = {
            k: [] for k in ("state", "next", "reward", "lo", "hi", "label", "count", "version", "tree")
        }
        self.S: dict[str, list] = {
            k: [] for k in ("prev", "last", "critic", "terminated", "truncated", "anchor", "oracle", "tree")
        }
        self.L: dict[str, list] = {k: [] for k in ("leaf", "return", "success", "fault", "count", "tree")}

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
                    self.A["hi"][action] = len(self.L["leaf"])
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

    def _tokens(self, tokens: Sequence[int], before: int, action: int, logp: Sequence[float]) -> int:
        """Appends a run of tokens after row ``before``; returns the row of the last one (``before`` if none)."""
        if action >= 0 and len(logp) not in (0, len(tokens)):
            raise ValueError(f"an action of {len(tokens)} tokens has {len(logp)} log-probabilities")
        start, n = len(self.token), len(tokens)
        if not n:
            return before
        depth = self.pos[before] + 1 if before >= 0 else 0
        self.token += tokens
        self.parent += [before, *range(start, start + n - 1)]
        self.pos += range(depth, depth + n)
        self.end += [0] * n
        self.action += [action] * n
        self.logp += logp if action >= 0 and logp else [0.0] * n
        return start + n - 1

    def _open_action(self, node: Node, tree: int, before_action: int) -> int:
        column = self.A
        column["state"].append(before_action)  # for an action the stack carries the index of its state
        column["next"].append(-1)
        column["reward"].append(node.reward)
        column["lo"].append(len(self.L["leaf"]))
        column["hi"].append(-1)
        column["label"].append(-1 if node.label is None else int(node.label))
        column["count"].append(node.count)
        column["version"].append(node.version)
        column["tree"].append(tree)
        return len(column["state"]) - 1

    def _open_state(self, node: Node, tree: int, last: int, action: int, total: float) -> int:
        column = self.S
        state = len(column["prev"])
        if action >= 0:
            self.A["next"][action] = state
        critic = -1
        if self.critic_prompt is not None and (self.valued is None or id(node) in self.valued):
            start = len(self.token)
            critic = self._tokens(self.critic_prompt, last, -1, ())
            self.end[start:] = [len(self.token)] * len(self.critic_prompt)
        for key, value in (
            ("prev", action),
            ("last", last),
            ("critic", critic),
            ("terminated", node.terminated),
            ("truncated", node.truncated),
            ("anchor", node.anchor),
            ("oracle", math.nan if node.oracle is None else node.oracle),
            ("tree", tree),
        ):
            column[key].append(value)
        if not node.children:
            leaf = self.L
            leaf["leaf"].append(state)
            leaf["return"].append(total)
            leaf["success"].append(-1 if node.success is None else int(node.success))
            leaf["fault"].append(node.fault is not None)
            leaf["count"].append(self.A["count"][action] if action >= 0 else 1)
            leaf["tree"].append(tree)
        return state

    def batch(self, trees: int, device: torch.device | str) -> Batch:
        def ints(column: list) -> Tensor:
            return torch.tensor(column, dtype=torch.long, device=device)

        def floats(column: list) -> Tensor:
            return torch.tensor(column, dtype=torch.float32, device=device)

        def bools(column: list) -> Tensor:
            return torch.tensor(column, dtype=torch.bool, device=device)

        A, S, L = self.A, self.S, self.L
        return Batch(
            token_T=ints(self.token),
            parent_T=ints(self.parent),
            pos_T=ints(self.pos),
            end_T=ints(self.end),
            action_T=ints(self.action),
            old_logp_T=floats(self.logp),
            state_A=ints(A["state"]),
            next_A=ints(A["next"]),
            reward_A=floats(A["reward"]),
            lo_A=ints(A["lo"]),
            hi_A=ints(A["hi"]),
            label_A=ints(A["label"]),
            count_A=ints(A["count"]),
            version_A=ints(A["version"]),
            prev_S=ints(S["prev"]),
            last_S=ints(S["last"]),
            critic_S=ints(S["critic"]),
            terminated_S=bools(S["terminated"]),
            truncated_S=bools(S["truncated"]),
            anchor_S=tuple(S["anchor"]),
            oracle_S=floats(S["oracle"]),
            leaf_L=ints(L["leaf"]),
            return_L=floats(L["return"]),
            success_L=ints(L["success"]),
            fault_L=bools(L["fault"]),
            count_L=ints(L["count"]),
            tree_S=ints(S["tree"]),
            tree_A=ints(A["tree"]),
            tree_L=ints(L["tree"]),
            trees=trees,
        )
