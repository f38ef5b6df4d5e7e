"""Settings of the adapter, of the critics and of attention. Imports no torch: the command line needs them."""

from dataclasses import dataclass
from enum import StrEnum

from agent_envs.ranges import check_ranges
from agents.text.settings import CRITIC_TEXT

MOST_RANK, MOST_HIDDEN, MOST_LAYERS = 8192, 65_536, 64
"""Sizes above which a mistyped number would only fill the memory."""


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
    """Names of the modules to adapt; "all-linear" is every linear layer but the output layer, "auto" the linear layers
    of the decoder's own blocks."""

    def __post_init__(self) -> None:
        check_ranges(self, rank=(1, MOST_RANK), alpha=(1e-9, 1e9))
        if self.dropout:
            raise ValueError(f"dropout must be 0, not {self.dropout}: with dropout no probability ratio is exact")


class Attention(StrEnum):
    """How attention over token trees is computed: FlexAttention or FlashAttention on CUDA, C that is compiled for this
    processor on a CPU, plain kernel calls on blocks anywhere."""

    AUTO = "auto"
    BLOCKS = "blocks"
    COMPILED = "compiled"
    FLEX = "flex"
    VARLEN = "varlen"


class Start(StrEnum):
    """What every value is before the first update: 0, or the mean return of the first episodes that were played."""

    ZERO = "zero"
    CALIBRATED = "calibrated"


@dataclass(frozen=True)
class HeadSettings:
    """A value head: a small MLP on a hidden state."""

    hidden: int = 128
    """Width of the value head's hidden layers."""
    layers: int = 1
    """Number of hidden layers of the value head."""
    start: Start = Start.ZERO
    """The value of every state before the first update."""
    standardize: bool = False
    """Standardise the head's input by its mean and deviation over the first update's episodes: after a fixed prompt,
    hidden states differ little between states."""

    def __post_init__(self) -> None:
        check_ranges(self, hidden=(1, MOST_HIDDEN), layers=(1, MOST_LAYERS))

    @property
    def waits(self) -> bool:
        """Whether the head wants to see the first episodes before it says anything."""
        return self.standardize or self.start == Start.CALIBRATED


@dataclass(frozen=True)
class CriticSettings(HeadSettings):
    """The value head: a small MLP on the hidden state of the last token of a critic prompt."""

    prompt: str = CRITIC_TEXT
    """System message of the critic prompt that is appended to every state. When empty, values are read at the last
    token of the state itself, at no extra cost."""
    detach_body: bool = False
    """Ablation: the critic's gradient stops at the value head and does not reach LoRA."""


@dataclass(frozen=True)
class SeparateCriticSettings(HeadSettings):
    """A critic of its own on the policy's frozen base: a second LoRA adapter, and a small MLP on every token."""

    rank: int = 8
    """Rank of each of the critic's LoRA matrix pairs."""
    alpha: float = 16
    """The critic's LoRA scale: the update is multiplied by alpha / rank."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, rank=(1, MOST_RANK), alpha=(1e-9, 1e9))
