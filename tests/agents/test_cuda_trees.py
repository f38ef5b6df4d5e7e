"""Token trees on a real GPU: FlexAttention's kernels, gradients, bfloat16, and memory that runs out.

The truth is the same model in float64 on the CPU, read one path at a time.
"""

import copy
import random
from collections.abc import Iterator

import pytest
import torch
from cuda_cases import CUDA, TOLERANCE, base, marks
from engine_cases import FAMILIES
from torch import Tensor
from tree_cases import (
    CRITIC_PROMPT,
    SHAPES,
    chain,
    gradients,
    group,
    loss_of,
    of_actions,
    relative,
    trees,
    truth,
    wake,
)

from agents.model.actor_critic import ActorCritic
from agents.model.attention.flex import FlexPlan
from agents.model.settings import Attention, LoraSettings
from agents.tree import Batch, Node
from agents.tree.packing import pack
from agents.tree.token_budget import fits, out_of_memory

pytestmark = marks
WAYS = [Attention.FLEX, Attention.BLOCKS]


def actor_critic(
    family: str,
    device: torch.device | str = CUDA,
    dtype: torch.dtype = torch.float32,
    attention: Attention = Attention.AUTO,
    *,
    checkpointing: bool = False,
) -> ActorCritic:
    """The same weights wherever and in whatever type they are."""
    made = base(family, dtype).to(device)
    model = ActorCritic(made, LoraSettings(rank=4), attention=attention, checkpointing=checkpointing)
    wake(model)
    return model.double() if dtype == torch.float64 else model


def long_trees() -> list[Node]:
    """About 1,500 tokens: more than ten of the kernel's blocks, with windows and branches across them."""
    rng = random.Random(5)
    return [chain(rng, 60), group(rng, 60), *trees("forks"), *trees("bushy")]


def step(model: ActorCritic, batch: Batch) -> tuple[Tensor, Tensor, list[Tensor]]:
    """(log-probabilities of actions, values, gradients), all on the CPU."""
    out = model(batch)
    assert out.value_S is not None
    mine = batch.action_T[batch.action_rows].cpu()
    loss = loss_of(of_actions(batch, out).cpu(), out.value_S.cpu(), mine)
    return of_actions(batch, out).detach().cpu(), out.value_S.detach().cpu(), [g.cpu() for g in gradients(model, loss)]


def test_auto_takes_the_kernel() -> None:
    model = actor_critic("qwen3")
    assert model.attention is Attention.FLEX and model.how.startswith("since the model is on CUDA")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("family", FAMILIES)
def test_packed_equals_one_forward_per_path(family: str, way: Attention) -> None:
    exact, model = actor_critic(family, "cpu", torch.float64), actor_critic(family, attention=way)
    for shape in SHAPES:
        logp_N, value_S = truth(exact, trees(shape))
        ours_N, ours_S, _ = step(model, pack(trees(shape), CRITIC_PROMPT, CUDA))
        assert (ours_N - logp_N).abs().max() <= TOLERANCE
        assert (ours_S - value_S).abs().max() <= TOLERANCE


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("family", ["llama", "mixed"])
def test_long_rows_and_their_gradients(family: str, way: Attention, checkpointing: bool) -> None:
    exact_N, exact_S, exact = step(actor_critic(family, "cpu", torch.float64), pack(long_trees(), CRITIC_PROMPT))
    model = actor_critic(family, attention=way, checkpointing=checkpointing)
    ours_N, ours_S, ours = step(model, pack(long_trees(), CRITIC_PROMPT, CUDA))
    assert len(ours_N) > 700
    assert (ours_N - exact_N).abs().max() <= TOLERANCE
    assert (ours_S - exact_S).abs().max() <= TOLERANCE
    assert relative(ours, exact) <= 1e-4


def test_a_wrong_end_is_noticed() -> None:
    """The control: two branches see each other."""
    exact_N = step(actor_critic("llama", "cpu", torch.float64), pack(trees("group"), CRITIC_PROMPT))[0]
    model, batch = actor_critic("llama"), pack(trees("group"), CRITIC_PROMPT, CUDA)
    causal = FlexPlan(batch.pos_T, torch.full_like(batch.end_T, len(batch)), CUDA)
    with torch.no_grad():
        wrong_N = of_actions(batch, model.read(model.hidden(batch, causal), batch)).cpu()
    assert (wrong_N - exact_N).abs().max() > 0.01


def test_bfloat16_stays_close() -> None:
    exact_N, _, exact = step(actor_critic("qwen3"), pack(long_trees(), CRITIC_PROMPT, CUDA))
    model = actor_critic("qwen3", dtype=torch.bfloat16)
    ours_N, _, ours = step(model, pack(long_trees(), CRITIC_PROMPT, CUDA))
    assert 1e-4 < (ours_N - exact_N).abs().mean() <= 0.05
    flat, truth = (torch.cat([g.flatten() for g in x]) for x in (ours, exact))
    assert flat.dtype == torch.float32
    assert torch.cosine_similarity(flat, truth, dim=0) >= 0.99


@pytest.fixture
def noticed() -> Iterator[None]:
    """Every operation that waits for the device is an error."""
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


def loss_on_device(model: ActorCritic, batch: Batch) -> Tensor:
    out = model(batch)
    assert out.value_S is not None
    return out.logp_T.sum() + out.value_S.square().sum()


@pytest.mark.parametrize("way", WAYS)
def test_nothing_waits_for_the_device(way: Attention, request: pytest.FixtureRequest) -> None:
    model = actor_critic("qwen3", attention=way)
    batch = pack(long_trees(), CRITIC_PROMPT, CUDA)
    loss_on_device(model, batch).backward()  # compiles, and makes the plan
    request.getfixturevalue("noticed")
    loss_on_device(model, copy.copy(batch)).backward()
    with pytest.raises(RuntimeError, match="synchronizing"):
        batch.end_T.max().item()


def test_memory_that_runs_out_leaves_the_gradient_alone() -> None:
    """With a limit below what a pass takes: a real error of the allocator, and the next pass runs again."""
    model, batch = actor_critic("qwen3", dtype=torch.bfloat16), pack(long_trees() * 8, CRITIC_PROMPT, CUDA)
    trained = [p for p in model.parameters() if p.requires_grad]
    loss_on_device(model, batch).backward()
    before = [p.grad.clone() for p in trained if p.grad is not None]
    held = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    loss_on_device(model, batch).backward()
    peak = torch.cuda.max_memory_allocated()
    assert len(before) == len(trained) and peak - held > 2**25
    for parameter, grad in zip(trained, before, strict=True):
        parameter.grad = grad.clone()
    whole = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction((held + (peak - held) // 2) / whole)
    try:
        assert not fits(lambda: loss_on_device(model, batch).backward(), trained)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert all(torch.equal(p.grad, g) for p, g in zip(trained, before, strict=True) if p.grad is not None)
    assert fits(lambda: loss_on_device(model, batch).backward(), trained)
    with pytest.raises(torch.OutOfMemoryError) as error:
        torch.empty(2 * whole, dtype=torch.uint8, device=CUDA)
    assert out_of_memory(error.value)
