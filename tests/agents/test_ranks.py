"""Processes that share a batch: the gradient is that of one process, whoever holds the weights."""

import json
from pathlib import Path

import pytest
import torch
from rank_processes import run_ranks
from ranks_child import CASES
from test_backward import batch_of, coupled, grads_of
from tree_cases import CRITIC_PROMPT, actor_critic, relative, trees

from agents.text.errors import ModelError
from agents.tree import Forward
from agents.tree.chunked_backward import assemble, cut
from agents.tree.packing import pack
from agents.tree.ranks import stretch


@pytest.mark.runs
@pytest.mark.parametrize(("kind", "size"), [("ddp", 2), ("ddp", 3), ("fsdp", 2)])
def test_the_gradient_is_that_of_one_process(tmp_path: Path, kind: str, size: int) -> None:
    """Also where a stretch takes several passes, and where one rank is short of memory; FSDP holds about half."""
    out = tmp_path / "cases.json"
    run_ranks(Path(__file__).with_name("ranks_child.py"), size, kind, tmp_path / "meeting", out, seconds=300)
    cases = json.loads(out.read_text())
    assert [(case["family"], case["shape"]) for case in cases] == CASES
    ways = ("one pass", "several passes", *(["one short of memory"] if kind == "ddp" else []))
    for case in cases:
        for way in ways:
            loss, grad = case[way]
            assert loss <= 1e-5 and grad <= 1e-5, (case, way)
        assert case["held"] < 0.7 if kind == "fsdp" else case["held"] == 1  # embeddings and the output layer stay


@pytest.mark.parametrize("shape", ["chain", "group", "forks", "bushy", "several"])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_stretches_own_every_row_once_and_are_about_equal(shape: str, size: int) -> None:
    batch = batch_of(shape)
    ends = [stretch(batch, rank, size) for rank in range(size)]
    assert [start for start, _ in ends] == [0, *(stop for _, stop in ends[:-1])] and ends[-1][1] == len(batch)
    share = len(batch) / size
    assert all(0.7 * share - 1 <= stop - start <= 1.3 * share + 1 for start, stop in ends)


def test_a_cut_is_near_a_root() -> None:
    """Two trees of nearly the same size: nothing is repeated."""
    two = pack([*trees("bushy"), *trees("bushy")], CRITIC_PROMPT)
    (_, first), (second, _) = (stretch(two, rank, 2) for rank in range(2))
    assert first == second == len(two) // 2 and int(two.pos_T[first]) == 0


def test_fewer_tokens_than_ranks_are_refused() -> None:
    batch = batch_of("chain")
    with pytest.raises(ModelError, match="ranks cannot share"):
        stretch(batch, 0, len(batch) + 1)


def test_control_a_rank_alone_has_another_gradient() -> None:
    """Half of the batch with its own half of the loss, as ranks that never spoke would have it, is seen."""
    batch, model = batch_of("group"), actor_critic("llama")
    _, whole = grads_of(model, batch, 10_000)
    model.zero_grad()
    (part,) = cut(batch, 10_000, stretch(batch, 0, 2))
    new: Forward = assemble(batch, [(part, model(part.batch))])
    coupled(batch)(new).total.backward()
    alone = [p.grad if p.grad is not None else torch.zeros_like(p) for p in model.parameters() if p.requires_grad]
    assert relative(alone, whole) > 1e-2
