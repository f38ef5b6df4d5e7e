"""Value heads: a small MLP from a hidden state of the model to one number.

Invariant: at the start every value is the same number, 0 unless the head was calibrated.

Legend: N states or tokens that are valued, D width of the model.
"""

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from agents.model.settings import HeadSettings, Start


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


def value_head(model: PreTrainedModel, settings: HeadSettings) -> nn.Sequential:
    """Draws its weights from the global generator."""
    width = model.config.get_text_config(decoder=True).hidden_size
    last = nn.Linear(settings.hidden, 1)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    inner: list[nn.Module] = [Standard(width)] if settings.standardize else []
    for layer in range(settings.layers):
        inner += [nn.Linear(settings.hidden if layer else width, settings.hidden), nn.SiLU()]
    head = nn.Sequential(*inner, last)
    return head.to(device=model.device, dtype=torch.promote_types(model.dtype, torch.float32))


@torch.no_grad()
def calibrate(head: nn.Sequential, settings: HeadSettings, hidden_ND: Tensor, mean_return: float) -> None:
    """Tells a head that has not learned yet what it will read, and the mean return, as far as it waits for them."""
    first, last = head[0], head[-1]
    if isinstance(first, Standard):
        first.observe(hidden_ND)
    if settings.start == Start.CALIBRATED:
        assert isinstance(last, nn.Linear)
        last.bias.fill_(mean_return)
