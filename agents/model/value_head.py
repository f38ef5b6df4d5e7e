"""Value heads: a small MLP from a hidden state of the model to one number.

Invariant: at the start every value is the same number, 0 unless the head was calibrated.

Legend: N states or tokens that are valued, D width of the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from agents.text.chat import CRITIC_TEXT
from agents.text.errors import ModelError


class Start(StrEnum):
    """What every value is before the first update: 0, or the mean return of the first episodes that were played."""

    ZERO = "zero"
    CALIBRATED = "calibrated"


@dataclass(frozen=True)
class CriticSettings:
    """The value head: a small MLP on the hidden state of the last token of a critic prompt."""

    prompt: str = CRITIC_TEXT
    """System message of the shadow prompt that is hung under every state. When empty, none is: values are read at the
    last token of the state itself, where the policy begins its answer, and no more is encoded than without a critic."""
    hidden: int = 128
    """Width of its hidden layers."""
    layers: int = 1
    """How many hidden layers it has."""
    start: Start = Start.ZERO
    """What every value is before the first update."""
    standardize: bool = False
    """Centre and scale what the head reads by its mean and deviation over the first update's episodes. The hidden state
    of a prompt that is always the same differs little between states, next to what they have in common."""
    detach_body: bool = False
    """Ablation: the critic's gradient stops at the value head and does not reach LoRA."""


@dataclass(frozen=True)
class SeparateCriticSettings:
    """A critic of its own on the policy's frozen base: a second LoRA adapter, and a small MLP on every token."""

    rank: int = 8
    """Rank of each of its LoRA matrix pairs."""
    alpha: float = 16
    """Its LoRA scale: the update is multiplied by alpha / rank."""
    hidden: int = 128
    """Width of the hidden layers of its value head."""
    layers: int = 1
    """How many hidden layers that has."""
    start: Start = Start.ZERO
    """What every value is before the first update."""
    standardize: bool = False
    """Centre and scale what the head reads by its mean and deviation over the first update's episodes. The hidden state
    of a prompt that is always the same differs little between states, next to what they have in common."""


class Standard(nn.Module):
    """(x - mean) / deviation of each feature, as they were when ``observe`` was called; before, x as it is."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mean_D: Tensor
        self.deviation_D: Tensor
        self.register_buffer("mean_D", torch.zeros(width))
        self.register_buffer("deviation_D", torch.ones(width))

    @torch.no_grad()
    def observe(self, hidden_ND: Tensor) -> None:
        """Takes the statistics of these rows; a feature that is always the same is left at its scale."""
        deviation_D = hidden_ND.std(0, correction=0)
        self.mean_D.copy_(hidden_ND.mean(0))
        self.deviation_D.copy_(torch.where(deviation_D > 1e-6, deviation_D, 1))

    def forward(self, hidden_ND: Tensor) -> Tensor:
        return (hidden_ND - self.mean_D) / self.deviation_D


def wide(x: Tensor) -> Tensor:
    """In at least float32: what log-probabilities and values are computed in."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def value_head(model: PreTrainedModel, settings: CriticSettings | SeparateCriticSettings) -> nn.Sequential:
    """Draws its weights from the global generator. Raises ModelError when it would have no hidden layer."""
    if settings.hidden < 1:
        raise ModelError(f"the value head's hidden width is {settings.hidden}: it must be at least 1")
    if settings.layers < 1:
        raise ModelError(f"the value head has {settings.layers} hidden layers: it must have at least 1")
    width = model.config.get_text_config(decoder=True).hidden_size
    last = nn.Linear(settings.hidden, 1)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    inner: list[nn.Module] = [Standard(width)] if settings.standardize else []
    for layer in range(settings.layers):
        inner += [nn.Linear(settings.hidden if layer else width, settings.hidden), nn.SiLU()]
    head = nn.Sequential(*inner, last)
    return head.to(device=model.device, dtype=torch.promote_types(model.dtype, torch.float32))


def waits(settings: CriticSettings | SeparateCriticSettings) -> bool:
    """Whether a head with these settings wants to see the first episodes before it says anything."""
    return settings.standardize or settings.start == Start.CALIBRATED


@torch.no_grad()
def calibrate(
    head: nn.Sequential, settings: CriticSettings | SeparateCriticSettings, hidden_ND: Tensor, mean_return: float
) -> None:
    """Tells a head that has not learned yet what it will read, and the mean return, as far as it waits for them."""
    first, last = head[0], head[-1]
    if isinstance(first, Standard):
        first.observe(hidden_ND)
    if settings.start == Start.CALIBRATED:
        assert isinstance(last, nn.Linear)
        last.bias.fill_(mean_return)
