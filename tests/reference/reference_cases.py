"""Reads the reference vectors, and turns their padded matrices into token trees.

The folder is `REFERENCE_VECTORS`, by default tests/vectors. A required file that is not there
is a failing test.

Legend of the shape suffixes: B rows of a padded matrix, C its columns, T tokens, A actions, S states, L leaves.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from agents.tree import Batch, Forward, Kind, Node
from agents.tree.packing import pack

FOLDER = Path(os.environ.get("REFERENCE_VECTORS", Path(__file__).parents[1] / "vectors"))


@dataclass(frozen=True)
class Case:
    """One case of a file, with the file's tolerance."""

    file: str
    id: str
    hyper: dict[str, Any]
    inputs: dict[str, Any]
    outputs: Any
    tolerance: float

    def tensor(self, name: str) -> Tensor:
        """An input as float64."""
        return torch.tensor(self.inputs[name], dtype=torch.float64)

    def expect(self, ours: Any, name: str | None = None, slack: float = 0.0) -> None:
        """Asserts that ``ours`` is the output called ``name`` within the file's tolerance plus ``slack``."""
        close(ours, self.outputs if name is None else self.outputs[name], self.tolerance + slack)

    def knows(self, *names: str) -> None:
        """Fails on a hyper-parameter that the test does not handle, so that none is passed over."""
        unknown = set(self.hyper) - set(names)
        assert not unknown, f"{self.file}/{self.id}: the test does not know {sorted(unknown)}"


class Missing:
    """Stands for a file that is not there: whatever a test asks of it fails."""

    def __init__(self, file: str) -> None:
        self.file = file

    def __getattr__(self, name: str) -> Any:
        raise FileNotFoundError(f"{self.file}.json is not in {FOLDER}")


def cases(file: str, required: bool = True) -> Any:
    """Parametrises a test over all cases of ``file``; a missing file fails, or skips if it is not ``required``."""
    path = FOLDER / f"{file}.json"
    if not path.exists() and not required:
        return pytest.mark.skip(reason=f"{file}.json, which is not among the required files, is not in {FOLDER}")
    if not path.exists():
        return pytest.mark.parametrize("case", [pytest.param(Missing(file), id=f"{file}-missing")])
    content = _finite(json.loads(path.read_text()))
    found = [
        Case(file, c.get("id", str(i)), c.get("hyper", {}), c["inputs"], c["outputs"], content["tolerance"])
        for i, c in enumerate(content["cases"])
    ]
    assert found, f"{path} holds no case"
    return pytest.mark.parametrize("case", [pytest.param(case, id=f"{file}-{case.id}") for case in found])


def _finite(value: Any) -> Any:
    """Decodes {"nonfinite": "nan"} to the float it stands for."""
    if isinstance(value, dict):
        if set(value) == {"nonfinite"}:
            return float(value["nonfinite"])
        return {k: _finite(v) for k, v in value.items()}
    return [_finite(v) for v in value] if isinstance(value, list) else value


def close(ours: Any, theirs: Any, tolerance: float) -> None:
    ours = ours.detach().double() if isinstance(ours, Tensor) else torch.tensor(ours, dtype=torch.float64)
    theirs = torch.as_tensor(theirs, dtype=torch.float64)
    torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance)


def double(batch: Batch) -> Batch:
    """The batch with float64 where it has float32."""
    names = ("old_logp_T", "reward_A", "return_L")
    return replace(batch, **{name: getattr(batch, name).double() for name in names})


@dataclass
class Padded:
    """A padded (B, C) matrix as trees, one chain per row: runs of mask 1 are actions, the rest is read.

    Each token's id is its flat place in the matrix, so that a matrix and the tokens can be read into each other.
    """

    mask: Tensor
    batch: Batch

    @classmethod
    def of(cls, mask: Tensor, group: Sequence[int] | None = None, rewards: Tensor | None = None) -> Padded:
        """Rows of one ``group`` share a tree (default: each row its own); ``rewards`` are paid by action tokens.

        With rewards, every action token is a turn of its own.
        """
        rows, columns = mask.shape
        roots: dict[Any, Node] = {}
        for row in range(rows):
            key = ("row", row) if group is None else group[row]
            state = root = roots.setdefault(key, Node(Kind.STATE, (rows * columns,)))
            action: Node | None = None
            for column in range(columns):
                token = (row * columns + column,)
                if not mask[row, column]:
                    if state is not root:  # what is read before anything was said has no part in any loss
                        state.tokens += token
                elif rewards is None and action is not None and not state.tokens:
                    action.tokens += token  # goes on saying
                else:
                    paid = 0.0 if rewards is None else float(rewards[row, column])
                    action = state.add(Node(Kind.ACTION, token, reward=paid))
                    state = action.add(Node(Kind.STATE, ()))
            state.terminated = not state.children
        return cls(mask, double(pack(list(roots.values()), critic_prompt=(rows * columns,))))

    def tokens(self, x: Tensor) -> Tensor:
        """x_T of a matrix: its entries at action tokens, 0 elsewhere."""
        flat = torch.cat([x.reshape(-1), x.new_zeros(1)])
        return torch.where(self.batch.action_T >= 0, flat[self.batch.token_T], 0)

    def rows(self) -> Tensor:
        """row_L: the row that each episode came from; -1 for one in which nothing was said."""
        row_T = self.batch.token_T // self.mask.shape[1]
        row_A = torch.zeros_like(self.batch.state_A).index_put((self.batch.action_T[self.said],), row_T[self.said])
        last_L = self.batch.prev_S[self.batch.leaf_L]
        return torch.cat([row_A, row_A.new_tensor([-1])])[last_L]

    @property
    def said(self) -> Tensor:
        return self.batch.action_T >= 0

    def matrix(self, x_T: Tensor) -> Tensor:
        """The (B, C) matrix of x_T, 0 where nothing was said."""
        flat = x_T.new_zeros(self.mask.numel()).index_put((self.batch.token_T[self.said],), x_T[self.said])
        return flat.reshape(self.mask.shape)

    def forward(self, logp: Tensor, old: Tensor, ref: Tensor | None = None) -> tuple[Batch, Forward]:
        """The batch with its old log-probabilities, and a forward pass that gave ``logp``."""
        ref_T = None if ref is None else self.tokens(ref)
        batch = replace(self.batch, old_logp_T=self.tokens(old), ref_logp_T=ref_T)
        return batch, Forward(self.tokens(logp), torch.zeros(len(batch)))
