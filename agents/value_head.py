"""Value heads: a small MLP from a hidden state of the model to one number.

Invariant: at the start every value is the same number, 0 unless the head was calibrated.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import nn
from transformers import PreTrainedModel

from agents.chat import CRITIC_TEXT
from agents.errors import ModelError


class Start(StrEnum):
    """What every value is before the first update: 0, or the mean return of the first episodes that were played."""

    ZERO = "zero"
    CALIBRATED = "calibrated"


@dataclass(frozen=True)
class CriticSettings:
    """The value head: a small MLP on the hidden state of the last token of a critic prompt."""

    prompt: str = CRITIC_TEXT
    """System message of the shadow prompt that is hung under every state."""
    hidden: int = 128
    """Width of its hidden layers."""
    layers: int = 1
    """How many hidden layers it has."""
    start: Start = Start.ZERO
    """What every value is before the first update."""
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
    inner: list[nn.Module] = []
    for layer in range(settings.layers):
        inner += [nn.Linear(settings.hidden if layer else width, settings.hidden), nn.SiLU()]
    head = nn.Sequential(*inner, last)
    return head.to(device=model.device, dtype=torch.promote_types(model.dtype, torch.float32))


@torch.no_grad()
def calibrate(head: nn.Sequential, value: float) -> None:
    """Makes ``value`` what a head that has not learned yet says of everything."""
    last = head[-1]
    assert isinstance(last, nn.Linear)
    last.bias.fill_(value)
