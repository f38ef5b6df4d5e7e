"""What a pass does not do: make anything of size T x T or T x vocabulary, or wait for the device.

A dispatch mode sees every operation, those of the backward pass too.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import Qwen3Config, Qwen3ForCausalLM
from tree_cases import CRITIC_PROMPT, actor_critic, loss_of, trees

from agents.model.actor_critic import ActorCritic, rows_of_logits
from agents.model.attention.flex import FlexPlan
from agents.model.attention.mask import tree_mask
from agents.tree import Batch, Forward, Kind, Node
from agents.tree.chunked_backward import backward, cut
from agents.tree.packing import pack
from agents.tree.token_budget import fits


@dataclass(frozen=True)
class Loss:
    total: Tensor


def loss_for(batch: Batch) -> Callable[[Forward], Loss]:
    def loss(out: Forward) -> Loss:
        assert out.value_S is not None
        return Loss(loss_of(out.logp_T[batch.action_rows], out.value_S, batch.action_T[batch.action_rows]))

    return loss


# -- sizes ------------------------------------------------------------------------------------------------------------


class Largest(TorchDispatchMode):
    """The number of entries of the largest tensor that any operation made."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        made = (x.untyped_storage().nbytes() // x.element_size() for x in tree_leaves(out) if isinstance(x, Tensor))
        self.numbers = max(self.numbers, *made, 0)
        return out


VOCABULARY = 20_000


def large(**options: Any) -> tuple[ActorCritic, Batch]:
    """A model of many words, and about 2,000 tokens of a group whose actions are most of it."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = Qwen3Config(
            vocab_size=VOCABULARY,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=8,
            tie_word_embeddings=True,
        )
        model = ActorCritic(Qwen3ForCausalLM(config), **options)
    rng = random.Random(0)

    def some(n: int) -> tuple[int, ...]:
        return tuple(rng.randrange(VOCABULARY) for _ in range(n))

    root = Node(Kind.STATE, some(200))
    for _ in range(4):
        state = root
        for _ in range(4):
            state = state.add(Node(Kind.ACTION, some(90))).add(Node(Kind.STATE, some(20)))
    return model, pack([root], CRITIC_PROMPT)


def largest(model: ActorCritic, batch: Batch) -> int:
    with Largest() as seen:
        backward(model, batch, loss_for(batch), len(batch))
    return seen.numbers


@pytest.mark.parametrize("checkpointing", [False, True])
def test_nothing_as_large_as_all_pairs_or_all_logits_is_made(checkpointing: bool) -> None:
    model, batch = large(chunk=64, checkpointing=checkpointing)
    assert len(batch) > 1900 and batch.action_rows.numel() > 1400
    weights = VOCABULARY * 16
    most = max(64 * VOCABULARY, weights)
    assert largest(model, batch) <= most < min(len(batch) ** 2, batch.action_rows.numel() * VOCABULARY) / 2


def test_the_watch_sees_what_it_is_for() -> None:
    """The controls: all logits at once; and a dense mask."""
    model, batch = large(chunk=10**6)
    assert largest(model, batch) == batch.action_rows.numel() * VOCABULARY
    with Largest() as seen:
        tree_mask(batch.end_T)
    assert seen.numbers == len(batch) ** 2


def test_flex_makes_its_block_mask_of_blocks_only() -> None:
    _, batch = large(chunk=64)
    with Largest() as seen:
        FlexPlan(batch.pos_T, batch.end_T).mask(100)
    assert seen.numbers <= 8192 < len(batch) ** 2 / 100


def test_rows_of_logits_are_bounded_by_rows_and_by_numbers() -> None:
    assert [rows_of_logits(words) for words in (61, 16_384, 151_936, 2**27)] == [4096, 4096, 441, 1]
    assert large()[0].chunk == rows_of_logits(VOCABULARY) == 3355


# -- waiting ----------------------------------------------------------------------------------------------------------

AT_ONCE = {"aten._local_scalar_dense", "aten.nonzero", "aten.is_nonzero", "aten.masked_select", "aten.equal"}
"""Operations whose result the program reads, or whose size depends on numbers: on a GPU it waits for them."""


class Waits(TorchDispatchMode):
    """The operations that would wait for a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = str(func.overloadpacket)
        by_mask = name in ("aten.index", "aten.index_put", "aten.index_put_") and any(
            isinstance(x, Tensor) and x.dtype == torch.bool for x in tree_leaves(args[1])
        )
        if name in AT_ONCE or by_mask:
            self.found.append(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_pass_waits_for_nothing(checkpointing: bool) -> None:
    """From a batch that was packed to its gradient: a pass of a minibatch, or of a part of it."""
    model = actor_critic("qwen3", checkpointing=checkpointing)
    batch = pack(trees("several"), CRITIC_PROMPT)
    loss_weights = torch.ones(len(batch))
    with Waits() as waits:
        out = model(batch)
        assert out.value_S is not None
        ((out.logp_T * loss_weights).sum() + out.value_S.sum()).backward()
    assert waits.found == []


def test_parts_wait_for_nothing_but_their_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch in parts: what reads numbers is the layout, which is done on the CPU for every device."""
    model, batch = actor_critic("qwen3"), pack(trees("several"), CRITIC_PROMPT)
    inside: list[Waits] = []

    def watched(work: Callable[[], object], parameters: Sequence[torch.nn.Parameter] | None = ()) -> bool:
        inside.append(Waits())
        with inside[-1]:
            return fits(work, parameters)

    budget = int(batch.pos_T.max()) + 5
    parts = len(cut(batch, budget))
    monkeypatch.setattr("agents.tree.chunked_backward.fits", watched)
    backward(model, batch, loss_for(batch), budget)
    assert len(inside) == 2 * parts > 2, "forwards of all parts, then their backwards"
    assert [name for waits in inside for name in waits.found] == []


def test_flex_plans_wait_for_nothing() -> None:
    batch = pack(trees("several"), CRITIC_PROMPT)
    with Waits() as waits:
        FlexPlan(batch.pos_T, batch.end_T).mask(12)
    assert waits.found == []


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.sum().item(),
        lambda x: x[x > 0],
        lambda x: torch.nonzero(x),
        lambda x: bool((x > 0).any()),
        lambda x: x.masked_select(x > 0),
    ],
)
def test_the_watch_sees_what_waits(program: Callable[[Tensor], object]) -> None:
    with Waits() as waits:
        program(torch.arange(3.0))
    assert waits.found
