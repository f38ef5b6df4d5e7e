"""Peak memory of one pass over a large tree: a large vocabulary, checkpointed layers, GRPO's pass and Self-AC's.

    python benchmarks/peak_memory.py                    # 32k tokens in a 90M model, about 20 minutes
    python benchmarks/peak_memory.py --quick            # 3k tokens in a 2M model

Forward and backward with LoRA, in a process of its own. It is compared with what cannot be saved: the weights, the
inputs of all layers, and what a single layer keeps for its backward pass, counted from the tensors that autograd saves.
Exits with 1 where a condition does not hold.
"""

import random
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import torch
import tyro
from rich.console import Console
from torch import Tensor

from agents.model.actor_critic import ActorCritic
from agents.tree import Batch
from agents.tree.packing import pack
from benchmarks import timing, variants

BRANCHES = 16
FLOAT = 4


@dataclass(frozen=True)
class PeakMemory:
    """Peak memory of a pass over one tree, against weights and activations."""

    size: str = "90M"
    """The model, by the parameters of its layers."""
    vocabulary: int = 150_000
    """Tokens that the model knows; its embeddings come on top of its layers."""
    turns: int = 17
    """Turns of each of 16 episodes that share a prompt: 17 are 32k tokens with critic prompts."""
    device: str = "cpu"
    """Where to run."""
    quick: bool = False
    """A smoke run: 2M, 4,000 words and 2 turns, limits half as wide again."""
    out: Path = Path("benchmarks/results/peak_memory.json")
    """File for the result."""


@dataclass(frozen=True)
class Peak:
    """One way of training, in bytes."""

    way: str
    tokens: int
    weights: int
    activations: int
    """Inputs of all layers, and what one layer keeps."""
    peak: int
    """Weights, and what was needed above them at the peak."""

    @property
    def share(self) -> float:
        return self.peak / (self.weights + self.activations)


def tree(turns: int, way: str, device: str) -> Batch:
    """The same episodes without (``grpo``) or with critic prompts (``selfac``)."""
    prompt = variants.CRITIC_PROMPT if way == "selfac" else None
    return pack([variants.bush(BRANCHES, turns, random.Random(0))], prompt, device)


def program(size: str, vocabulary: int, turns: int, way: str, device: str) -> tuple[timing.Program, timing.Program]:
    """(warm-up, program) for ``timing.peak_memory``."""
    model = variants.actor_critic(size, device=device, vocabulary=vocabulary, checkpointing=True)
    small, large = tree(1, way, device), tree(turns, way, device)
    step = variants.step
    return (lambda: step(variants.packed, model, small)), (lambda: step(variants.packed, model, large))


def saved_bytes(model: ActorCritic, batch: Batch) -> int:
    """What autograd keeps of a pass through all layers, without parameters; every storage counts once."""
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    found: dict[int, int] = {}

    def note(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in weights:
            found[storage.data_ptr()] = storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        hidden_TD = model.hidden(batch)  # alive until the count is done, or addresses would be used again
    del hidden_TD
    return sum(found.values())


def measure(settings: PeakMemory, way: str) -> Peak:
    """One way. Activations are counted on a smaller tree without checkpointing: they grow with its tokens."""
    arguments = (settings.size, settings.vocabulary, settings.turns, way, settings.device)
    above = timing.peak_memory(program, *arguments, device=settings.device)
    if above is None:
        sys.exit("error: this system does not tell a process's peak memory: run it on Linux")
    model = variants.actor_critic(settings.size, device=settings.device, vocabulary=settings.vocabulary)
    small, tokens = tree(1, way, settings.device), len(tree(settings.turns, way, settings.device))
    config = model.causal_model.config
    one_layer = saved_bytes(model, small) / len(small) / config.num_hidden_layers
    inputs = config.num_hidden_layers * config.hidden_size * FLOAT
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    return Peak(way, tokens, weights, int(tokens * (one_layer + inputs)), weights + above)


def conditions(grpo: Peak, selfac: Peak, quick: bool) -> Iterator[tuple[str, bool]]:
    """What must hold, each with whether it does."""
    wide = 1.5 if quick else 1.0
    for way in (grpo, selfac):
        line = f"{way.way}: the peak is {way.share:.2f} times weights and activations, at most {1.5 * wide}"
        yield line, way.share <= 1.5 * wide
    more = selfac.peak / grpo.peak
    yield f"Self-AC's peak is {more:.2f} times GRPO's, at most {1.35 * wide}", more <= 1.35 * wide


def main() -> None:
    settings = tyro.cli(PeakMemory)
    if settings.quick:
        settings = PeakMemory("2M", 4000, 2, settings.device, True, settings.out)
    timing.one_thread()
    console = Console(width=120)
    grpo, selfac = (measure(settings, way) for way in ("grpo", "selfac"))
    rows = [
        (p.way, p.tokens, *(f"{x / timing.MB:.0f} MB" for x in (p.weights, p.activations, p.peak)), p.share)
        for p in (grpo, selfac)
    ]
    title = f"forward and backward of one tree, {settings.size}, {timing.hardware(settings.device)}"
    headings = ("", "tokens", "weights", "activations", "peak", "peak / (weights + activations)")
    timing.print_table(title, headings, rows, console)
    result = {"vocabulary": settings.vocabulary, "size": settings.size, "ways": [asdict(grpo), asdict(selfac)]}
    judged = conditions(grpo, selfac, settings.quick)
    sys.exit(timing.finish(result, judged, settings.out, console, settings.device))


if __name__ == "__main__":
    main()
