"""Settings of the adapter and of the critics. Imports no torch: the command line needs them."""

from dataclasses import dataclass
from enum import StrEnum

from agents.text.settings import CRITIC_TEXT


@dataclass(frozen=True)
class LoraSettings:
    """The adapter that is trained; everything else of the model stays frozen."""

    rank: int = 8
    """Rank of each LoRA matrix pair."""
    alpha: float = 16
    """LoRA scale: the update is multiplied by alpha / rank."""
    dropout: float = 0.0
    """Must be 0: with dropout no probability ratio is exact."""
    targets: str | tuple[str, ...] = "all-linear"
    """Names of the modules to adapt; "all-linear" is every linear layer but the output layer."""


class Start(StrEnum):
    """What every value is before the first update: 0, or the mean return of the first episodes that were played."""

    ZERO = "zero"
    CALIBRATED = "calibrated"


@dataclass(frozen=True)
class CriticSettings:
    """The value head: a small MLP on the hidden state of the last token of a critic prompt."""

    prompt: str = CRITIC_TEXT
    """System message of the critic prompt that is appended to every state. When empty, values are read at the last
    token of the state itself, at no extra cost."""
    hidden: int = 128
    """Width of the value head's hidden layers."""
    layers: int = 1
    """Number of hidden layers of the value head."""
    start: Start = Start.ZERO
    """The value of every state before the first update."""
    standardize: bool = False
    """Standardise the head's input by its mean and deviation over the first update's episodes: after a fixed prompt,
    hidden states differ little between states."""
    detach_body: bool = False
    """Ablation: the critic's gradient stops at the value head and does not reach LoRA."""


@dataclass(frozen=True)
class SeparateCriticSettings:
    """A critic of its own on the policy's frozen base: a second LoRA adapter, and a small MLP on every token."""

    rank: int = 8
    """Rank of each of the critic's LoRA matrix pairs."""
    alpha: float = 16
    """The critic's LoRA scale: the update is multiplied by alpha / rank."""
    hidden: int = 128
    """Width of the value head's hidden layers."""
    layers: int = 1
    """Number of hidden layers of the value head."""
    start: Start = Start.ZERO
    """The value of every state before the first update."""
    standardize: bool = False
    """Standardise the head's input by its mean and deviation over the first update's episodes: after a fixed prompt,
    hidden states differ little between states."""
