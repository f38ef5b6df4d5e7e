"""Shape of the tiny model. Imports no torch: the command line needs it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TinySettings:
    """Shape of the tiny model."""

    layers: int = 2
    """Transformer layers; the first one looks at ``window`` tokens, the others at everything."""
    width: int = 128
    """Size of the hidden state."""
    heads: int = 2
    """Attention heads; each is width / heads wide."""
    mlp: int = 384
    """Size of the hidden layer of the feed-forward blocks."""
    window: int = 3
    """Tokens that the first layer sees: the present one and those just before it."""
    context: int = 4096
    """Longest sequence in tokens."""

    def __post_init__(self) -> None:
        if self.layers < 2 or self.heads < 1 or self.width % (2 * self.heads):
            raise ValueError(
                f"tiny: needs at least 2 layers and a width that is a multiple of twice the heads, "
                f"not {self.layers} layers, width {self.width}, heads {self.heads}"
            )
