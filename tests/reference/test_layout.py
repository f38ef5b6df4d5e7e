"""The packed layout of a Self-AC episode against the reference vectors: order, depth, parents, mask, rows."""

import json
import os
from pathlib import Path

import pytest
import torch

from agents.model.attention.mask import tree_mask
from agents.tree import Kind, Node
from agents.tree.packing import pack

FOLDER = Path(os.environ.get("REFERENCE_VECTORS", Path(__file__).parents[1] / "vectors"))
FILE = json.loads((FOLDER / "selfac_layout.json").read_text())


@pytest.mark.parametrize("case", FILE["cases"], ids=lambda case: case["id"])
def test_layout(case: dict) -> None:
    given, expected = case["inputs"], case["outputs"]
    root = state = Node(Kind.STATE, tuple(given["sp"] + given["up"]))
    for action, observation in given["turns"]:
        state = state.add(Node(Kind.ACTION, tuple(action))).add(Node(Kind.STATE, tuple(observation)))
    batch = pack([root], given["cp"])

    assert batch.token_T.tolist() == expected["seq"]
    assert batch.pos_T.tolist() == expected["pos"]
    assert batch.parent_T.tolist() == expected["parent"]
    assert batch.end_T.tolist() == expected["subtree_end"]
    assert tree_mask(batch.end_T).int().tolist() == expected["mask"]
    assert batch.critic_S.tolist() == expected["cp_end"]
    assert batch.last_S.tolist() == expected["state_end"]
    for action, rows in enumerate(expected["action_logit_rows"]):
        mine = torch.nonzero(batch.action_T == action).flatten()
        assert (int(mine[0]), int(mine[-1])) == (expected["a_start"][action], expected["a_end"][action])
        assert batch.parent_T[mine].tolist() == rows
        assert [expected["seq_next"][row] for row in rows] == batch.token_T[mine].tolist()
