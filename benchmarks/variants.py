"""The same numbers computed in different ways: what the benchmarks of cost compare.

Invariant: every way returns the ``Forward`` of the same batch, equal to rounding, with a gradient for the same
parameters; they differ only in what goes through the model. ``encoded`` counts that: tokens that enter the embedding.

Legend: T tokens of the tree, N action tokens, P tokens of one path, R rows and C columns of a padded batch, D width.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from agents.model.actor_critic import ActorCritic
from agents.model.attention.mask import tree_mask
from agents.model.attention.onednn_linear import widen
from agents.model.settings import CriticSettings, LoraSettings
from agents.tree import Batch, Forward, Kind, Node

VOCABULARY = 2048
PROMPT, ACTION, OBSERVATION, SHADOW = 60, 40, 60, 16
CRITIC_PROMPT = tuple(range(7, 7 + SHADOW))


@dataclass(frozen=True)
class Size:
    """Shape of a model; heads are 64 wide, two of them share a key head."""

    layers: int
    width: int
    heads: int
    mlp: int


SIZES = {
    "0.5M": Size(layers=2, width=128, heads=2, mlp=384),
    "2M": Size(layers=5, width=192, heads=4, mlp=384),
    "5M": Size(layers=6, width=256, heads=4, mlp=768),
    "10M": Size(layers=6, width=384, heads=6, mlp=1024),
    "90M": Size(layers=12, width=768, heads=12, mlp=2304),
}


def base_model(size: str, vocabulary: int = VOCABULARY) -> PreTrainedModel:
    """A Qwen3 with random weights."""
    shape = SIZES[size]
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads // 2,
        head_dim=64,
        intermediate_size=shape.mlp,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Qwen3ForCausalLM(config)


def actor_critic(
    size: str,
    *,
    lora: bool = True,
    device: str = "cpu",
    vocabulary: int = VOCABULARY,
    checkpointing: bool = False,
    widened: bool = False,
) -> ActorCritic:
    """The project's model, moved away from its zeros: LoRA that adds nothing and values of 0 would hide differences.

    ``widened`` as a training program loads it; without, nothing but LoRA differs from the plain passes beside it.
    """
    base = base_model(size, vocabulary).to(device)
    if widened:
        widen(base)
    model = ActorCritic(base, LoraSettings() if lora else None, CriticSettings(), checkpointing=checkpointing)
    wake(model)
    return model


def wake(model: ActorCritic) -> None:
    """Moves LoRA and the value head away from their zeros."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name or name.startswith("value_head.2"):
                parameter.copy_(0.02 * torch.randn(parameter.shape, generator=generator))


# -- trees ------------------------------------------------------------------------------------------------------------


def some(rng: random.Random, n: int) -> tuple[int, ...]:
    """A run of ``n`` random tokens."""
    return tuple(rng.randrange(VOCABULARY) for _ in range(n))


def episode(turns: int, rng: random.Random) -> Node:
    """A chain of ``turns`` turns of the benchmark's lengths, observation after the last one included."""
    root = state = Node(Kind.STATE, some(rng, PROMPT))
    for turn in range(turns):
        last = turn == turns - 1
        action = Node(Kind.ACTION, some(rng, ACTION), reward=float(last))
        state = state.add(action).add(Node(Kind.STATE, some(rng, OBSERVATION), terminated=last))
    return root


def bush(branches: int, turns: int, rng: random.Random) -> Node:
    """A prompt from which several episodes of the benchmark's lengths go their own ways."""
    root = Node(Kind.STATE, some(rng, PROMPT))
    for _ in range(branches):
        chain = episode(turns, rng)
        root.children += chain.children
    return root


def group(prompt: int, completions: list[int], rng: random.Random) -> Node:
    """A prompt with one action per completion length."""
    root = Node(Kind.STATE, some(rng, prompt))
    for length in completions:
        action = Node(Kind.ACTION, some(rng, length), reward=rng.random())
        root.add(action).add(Node(Kind.STATE, (), terminated=True))
    return root


# -- what went through the model --------------------------------------------------------------------------------------


Way = Callable[[ActorCritic, Batch], Forward]


@torch.no_grad()
def encoded(way: Way, model: ActorCritic, batch: Batch) -> int:
    """How many tokens, padding included, go through the model."""
    seen: list[int] = []
    embedding = model.causal_model.get_input_embeddings()
    handle = embedding.register_forward_pre_hook(lambda _module, args: seen.append(args[0].numel()))
    try:
        way(model, batch)
    finally:
        handle.remove()
    return sum(seen)


# -- the ways ---------------------------------------------------------------------------------------------------------


def packed(model: ActorCritic, batch: Batch) -> Forward:
    """One pass over the row, as the project trains."""
    return model(batch)


def dense(model: ActorCritic, batch: Batch) -> Forward:
    """One pass over the row with a T x T bool mask and transformers' own SDPA."""
    mask = tree_mask(batch.end_T)[None, None]
    return _read(model, batch, _hidden(model, batch.token_T[None], batch.pos_T[None], mask)[0])


def causal(model: ActorCritic, batch: Batch) -> Forward:
    """One chain without critic prompts as any causal language model reads it: transformers' own SDPA, no mask."""
    return _read(model, batch, _hidden(model, batch.token_T[None])[0])


def value_passes(model: ActorCritic, batch: Batch) -> Forward:
    """One pass of the actor over a chain, and one for each of its n + 1 values."""
    row_P = _path(batch, int(batch.last_S[-1]))
    hidden_TD = _hidden(model, batch.token_T[row_P][None])[0]
    whole_TD = hidden_TD.new_zeros(len(batch), hidden_TD.shape[1]).index_copy(0, row_P, hidden_TD)
    return _score(model, batch, whole_TD, _values(model, batch))


def turn_passes(model: ActorCritic, batch: Batch) -> Forward:
    """A pass per turn for its action and one per state for its value: 2 n + 1 passes for n turns."""
    logp_T = torch.zeros(len(batch), device=model.device)
    entropy_T = torch.zeros_like(logp_T)
    for action in range(batch.state_A.numel()):
        row_N = torch.nonzero(batch.action_T == action).squeeze(1)
        row_P = _path(batch, int(row_N[-1]))
        hidden_ND = _hidden(model, batch.token_T[row_P][None])[0, -1 - row_N.numel() : -1]
        logp_N, entropy_N = model._score(hidden_ND, batch.token_T[row_N])
        logp_T, entropy_T = logp_T.index_copy(0, row_N, logp_N), entropy_T.index_copy(0, row_N, entropy_N)
    return Forward(logp_T, entropy_T, _values(model, batch))


def padded_rows(model: ActorCritic, batch: Batch) -> Forward:
    """Every episode a row of its own, padded on the right to the longest, with a 2D mask."""
    paths = list(_episodes(batch))
    columns = max(row_P.numel() for row_P in paths)
    token_RC = torch.zeros(len(paths), columns, dtype=torch.long, device=model.device)
    mask_RC = torch.zeros_like(token_RC)
    for r, row_P in enumerate(paths):
        token_RC[r, : row_P.numel()] = batch.token_T[row_P]
        mask_RC[r, : row_P.numel()] = 1
    hidden_RCD = _hidden(model, token_RC, mask=mask_RC)
    return _of_rows(model, batch, [(row_P, hidden_RCD[r, : row_P.numel()]) for r, row_P in enumerate(paths)])


def separate_rows(model: ActorCritic, batch: Batch) -> Forward:
    """Every episode a pass of its own."""
    return _of_rows(model, batch, [(p, _hidden(model, batch.token_T[p][None])[0]) for p in _episodes(batch)])


# -- parts of the ways ------------------------------------------------------------------------------------------------


def _hidden(model: ActorCritic, ids: Tensor, positions: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
    """Last hidden states by an ordinary call of the model: without a plan its attention is transformers' own SDPA."""
    body = model.causal_model.base_model
    return body(input_ids=ids, position_ids=positions, attention_mask=mask, use_cache=False).last_hidden_state


def _path(batch: Batch, row: int) -> Tensor:
    """The rows from the root to ``row``."""
    return torch.nonzero(batch.end_T[: row + 1] > row).squeeze(1)


def _episodes(batch: Batch) -> Iterator[Tensor]:
    return (_path(batch, int(batch.last_S[leaf])) for leaf in batch.leaf_L)


def _values(model: ActorCritic, batch: Batch) -> Tensor:
    """The value of every state, a pass each."""
    tips = [_hidden(model, batch.token_T[_path(batch, int(row))][None])[0, -1] for row in batch.critic_S]
    assert model.value_head is not None
    return model.value_head(torch.stack(tips)).squeeze(1)


def _read(model: ActorCritic, batch: Batch, hidden_TD: Tensor) -> Forward:
    return _score(model, batch, hidden_TD, model._values(hidden_TD, batch)[0])


def _score(model: ActorCritic, batch: Batch, hidden_TD: Tensor, value_S: Tensor | None) -> Forward:
    row_N = torch.nonzero(batch.action_T >= 0).squeeze(1)
    logp_N, entropy_N = model._score(hidden_TD.index_select(0, batch.parent_T[row_N]), batch.token_T[row_N])
    zero_T = logp_N.new_zeros(len(batch))
    return Forward(zero_T.index_copy(0, row_N, logp_N), zero_T.index_copy(0, row_N, entropy_N), value_S)


def _of_rows(model: ActorCritic, batch: Batch, rows: list[tuple[Tensor, Tensor]]) -> Forward:
    """Log-probabilities from (rows of the batch, their hidden states) of every episode, one logits call for all.

    A token that episodes share is read in the first of them.
    """
    token, state, place = [], [], []
    taken = torch.zeros(len(batch), dtype=torch.bool, device=model.device)
    for row_P, hidden_PD in rows:
        mine_P = (batch.action_T[row_P] >= 0) & ~taken[row_P]
        own_N = torch.nonzero(mine_P).squeeze(1)
        token.append(batch.token_T[row_P[own_N]])
        state.append(hidden_PD.index_select(0, own_N - 1))
        place.append(row_P[own_N])
        taken[row_P[own_N]] = True
    logp_N, entropy_N = model._score(torch.cat(state), torch.cat(token))
    zero_T = logp_N.new_zeros(len(batch))
    row_N = torch.cat(place)
    return Forward(zero_T.index_copy(0, row_N, logp_N), zero_T.index_copy(0, row_N, entropy_N), None)


# -- the loss ---------------------------------------------------------------------------------------------------------


def loss_of(batch: Batch, out: Forward) -> Tensor:
    """A policy-gradient term with fixed advantages, and the squared error of the values where there are any."""
    generator = torch.Generator().manual_seed(3)
    adv_A = torch.randn(batch.state_A.numel(), generator=generator).to(out.logp_T)
    ratio_T = (out.logp_T - out.logp_T.detach()).exp()
    mean = (batch.per_action(ratio_T) * adv_A).sum() / (batch.action_T >= 0).sum()
    if out.value_S is None:
        return -mean
    return (out.value_S - batch.reward_A.sum()).square().mean() - mean


def step(way: Way, model: ActorCritic, batch: Batch) -> Tensor:
    """Forward and backward; gradients are thrown away first. Returns the loss."""
    model.zero_grad(set_to_none=True)
    loss = loss_of(batch, way(model, batch))
    loss.backward()
    return loss.detach()
