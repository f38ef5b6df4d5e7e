"""The exactness protocol in float64, with a small reference transformer: mask, depth and parent rows are the format.

Hugging Face norms compute in float32, so only a model of our own can show that nothing but rounding is left.
"""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from tree_cases import CRITIC_PROMPT, SHAPES, VOCABULARY, actions, loss_of, relative, states, trees

from agents.model.attention.mask import tree_mask
from agents.tree.packing import pack

HEADS, WIDTH, LAYERS = 2, 16, 3


@dataclass
class Reference:
    """A pre-norm transformer with rotary positions, written out."""

    weights: dict[str, Tensor]

    @classmethod
    def random(cls) -> "Reference":
        generator = torch.Generator().manual_seed(5)

        def matrix(*shape: int) -> Tensor:
            scale = 1.5 / shape[-1] ** 0.5
            return (scale * torch.randn(*shape, generator=generator, dtype=torch.float64)).requires_grad_()

        weights = {"embed": matrix(VOCABULARY, WIDTH), "head": matrix(VOCABULARY, WIDTH), "value": matrix(1, WIDTH)}
        for layer in range(LAYERS):
            weights |= {f"{name}{layer}": matrix(WIDTH, WIDTH) for name in ("q", "k", "v", "o")}
            weights |= {f"up{layer}": matrix(2 * WIDTH, WIDTH), f"down{layer}": matrix(WIDTH, 2 * WIDTH)}
        return cls(weights)

    def hidden(self, token_T: Tensor, pos_T: Tensor, mask_TT: Tensor) -> Tensor:
        w = self.weights
        x_TD = w["embed"][token_T]
        for i in range(LAYERS):
            y_TD = norm(x_TD)
            q, k, v = ((y_TD @ w[f"{name}{i}"].T).unflatten(1, (HEADS, -1)).transpose(0, 1) for name in "qkv")
            score_HTT = rotate(q, pos_T) @ rotate(k, pos_T).transpose(1, 2) / (WIDTH / HEADS) ** 0.5
            share_HTT = score_HTT.masked_fill(~mask_TT, float("-inf")).softmax(-1)
            x_TD = x_TD + (share_HTT @ v).transpose(0, 1).flatten(1) @ w[f"o{i}"].T
            x_TD = x_TD + torch.tanh(norm(x_TD) @ w[f"up{i}"].T) @ w[f"down{i}"].T
        return norm(x_TD)

    def read(self, hidden_TD: Tensor, row: Tensor, token: Tensor) -> Tensor:
        return torch.log_softmax(hidden_TD[row] @ self.weights["head"].T, dim=-1)[torch.arange(len(row)), token]

    def value(self, hidden_ND: Tensor) -> Tensor:
        return (hidden_ND @ self.weights["value"].T)[:, 0]


def norm(x: Tensor) -> Tensor:
    return x / x.square().mean(-1, keepdim=True).add(1e-6).sqrt()


def rotate(x_HTD: Tensor, pos_T: Tensor) -> Tensor:
    half = x_HTD.shape[-1] // 2
    angle = pos_T[:, None] / 100 ** (torch.arange(half, dtype=torch.float64) / half)
    a, b = x_HTD[..., :half], x_HTD[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], dim=-1)


def packed(model: Reference, shape: str, spoil: str = "") -> tuple[Tensor, Tensor]:
    batch = pack(trees(shape), CRITIC_PROMPT)
    row_T = torch.arange(len(batch))
    end_T = torch.full_like(row_T, len(batch)) if spoil == "causal only" else batch.end_T
    pos_T = row_T if spoil == "linear positions" else batch.pos_T
    parent_T = row_T - 1 if spoil == "index - 1" else batch.parent_T
    hidden = model.hidden(batch.token_T, pos_T, tree_mask(end_T))
    mine = batch.action_T >= 0
    return model.read(hidden, parent_T[mine], batch.token_T[mine]), model.value(hidden[batch.critic_S])


def separate(model: Reference, shape: str) -> tuple[Tensor, Tensor]:
    roots = trees(shape)
    lengths = iter(len(node.tokens) for node in actions(roots))
    logp, value = [], []
    for tokens, own in states(roots):
        ids = torch.tensor([*tokens, *CRITIC_PROMPT])
        row = torch.arange(len(ids))
        hidden = model.hidden(ids, row, row <= row[:, None])
        value.append(model.value(hidden[-1:]))
        if len(tokens) > own:
            stop = len(tokens) - own
            mine = row[stop - next(lengths) : stop]
            logp.append(model.read(hidden, mine - 1, ids[mine]))
    return torch.cat(logp), torch.cat(value)


@pytest.mark.parametrize("shape", SHAPES)
def test_exact_to_rounding(shape: str) -> None:
    model = Reference.random()
    action_T = pack(trees(shape), CRITIC_PROMPT).action_T
    ours, theirs = packed(model, shape), separate(model, shape)
    for a, b in zip(ours, theirs, strict=True):
        assert (a - b).abs().max() <= 1e-10
    loss, truth = (loss_of(*numbers, action_T[action_T >= 0]) for numbers in (ours, theirs))
    assert (loss - truth).abs() <= 1e-10
    weights = list(model.weights.values())
    assert relative(list(torch.autograd.grad(loss, weights)), list(torch.autograd.grad(truth, weights))) <= 1e-10


@torch.no_grad()
@pytest.mark.parametrize("spoil", ["causal only", "linear positions", "index - 1"])
def test_negative_controls_fail(spoil: str) -> None:
    model = Reference.random()
    assert (packed(model, "chain", spoil)[0] - separate(model, "chain")[0]).abs().max() > 0.1
