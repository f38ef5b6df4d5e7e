"""Shape of the tiny model. Imports no torch: the command line needs it."""

from dataclasses import dataclass

from agent_envs.ranges import check_ranges


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
        bounds = {"layers": (2, 64), "width": (4, 8192), "heads": (1, 256), "mlp": (1, 65_536)}
        check_ranges(self, ValueError, "tiny: ", **bounds, window=(1, 65_536), context=(16, 1_000_000))
        if self.width % (2 * self.heads):
            raise ValueError(
                f"tiny: width must be a multiple of twice the heads, not {self.width} with {self.heads} heads"
            )
