"""How close a training pass comes to the speed at which this processor multiplies matrices.

    python benchmarks/limit.py        # five minutes on one thread

Forward and backward of Self-AC with LoRA over one episode of 8 turns, as in ``selfac_cost.py``. Counted are the
multiplications of the linear layers that the mathematics needs, nothing else: none of attention, none that are done
twice. The limit is a plain product of two square matrices (``@``), timed in the same rounds. On other makers'
processors than Intel's that is MKL at half their width, so oneDNN's product stands beside it, without a condition.
Exits with 1 where a share is below its condition.
"""

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import torch
import tyro
from rich.console import Console
from torch import nn

from agents.model.actor_critic import ActorCritic
from agents.model.attention.onednn_linear import able, times
from agents.tree import Batch
from agents.tree.packing import pack
from benchmarks import timing, variants
from benchmarks.timing import Spread

AT_LEAST = {"0.5M": 0.35, "5M": 0.5, "90M": 0.7}
"""Of the limit's speed, by the number of parameters."""
SIDE = 1024
"""Rows and columns of the matrices of the limit."""


@dataclass(frozen=True)
class Limit:
    """Measure the share of the processor's speed that a training pass reaches."""

    sizes: tuple[str, ...] = ("0.5M", "2M", "5M", "10M", "90M")
    """Models, by their number of parameters."""
    turns: int = 8
    """Turns of the episode."""
    episodes: int = 1
    """Episodes of a pass."""
    rounds: int = 21
    """How often everything is timed, in turn."""
    out: Path = Path("benchmarks/results/limit.json")
    """File for the result."""


@dataclass(frozen=True)
class Share:
    """What one model reached."""

    size: str
    tokens: int
    gflop: float
    speed: Spread
    """Of the pass, in GFLOP a second."""
    limit: Spread
    """Of the plain product."""
    share: Spread
    of_onednn: Spread | None = None
    """Of the speed of the same product by oneDNN; None where it cannot be asked for one."""


def operations(model: ActorCritic, batch: Batch) -> int:
    """Floating-point operations of all linear layers, forward and backward.

    Two for each token and weight: once forward, and once for the gradient of the input. The first layer's projections
    of queries, keys and values need no such gradient, for nothing below them is trained. A matrix of an adapter is
    needed twice, for the gradients of the pair; forward it is part of the weight that it changes. Logits are read at
    action tokens only, values at prompts.
    """
    head = model.causal_model.get_output_embeddings()
    values = set() if model.value_head is None else {id(m) for m in model.value_head.modules()}
    prompts = int((batch.critic_S >= 0).sum())
    total = 0
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            rows = len(batch.action_rows) if module is head else prompts if id(module) in values else len(batch)
            first = ".layers.0." in name and name.endswith(_PROJECTIONS)
            times = 3 if id(module) in values else 1 if first else 2
            total += 2 * rows * module.weight.numel() * times
    return total


_PROJECTIONS = tuple(f"{name}_proj.base_layer" for name in "qkv")


def measure(size: str, settings: Limit) -> Share:
    """Of one model."""
    model = variants.actor_critic(size, widened=True)
    rng = random.Random(0)
    batch = pack([variants.episode(settings.turns, rng) for _ in range(settings.episodes)], variants.CRITIC_PROMPT)
    generator = torch.Generator().manual_seed(0)
    one, other = (torch.randn(SIDE, SIDE, generator=generator) for _ in range(2))
    work = operations(model, batch)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def one_pass() -> None:
        for parameter in trained:
            parameter.grad = None  # as an optimizer does it; ``model.zero_grad()`` searches all modules first
        variants.loss_of(batch, model(batch)).backward()

    programs: dict[str, Callable[[], object]] = {
        "pass": one_pass,
        "limit": lambda: one @ other,
    }
    if able():
        programs["oneDNN"] = lambda: times(one, other)
    taken = timing.interleaved(programs, settings.rounds, warm=2)
    speed = [work / seconds / 1e9 for seconds in taken["pass"]]
    limit, onednn = ([2 * SIDE**3 / seconds / 1e9 for seconds in taken.get(name, ())] for name in ("limit", "oneDNN"))
    share, of_onednn = ([a / b for a, b in zip(speed, rival, strict=False)] for rival in (limit, onednn))
    return Share(
        size,
        len(batch),
        work / 1e9,
        Spread.of(speed),
        Spread.of(limit),
        Spread.of(share),
        Spread.of(of_onednn) if onednn else None,
    )


def conditions(shares: list[Share]) -> Iterator[tuple[str, bool]]:
    """What must hold, each with whether it does."""
    for one in shares:
        if least := AT_LEAST.get(one.size):
            yield f"{one.size}: {one.share.median:.2f} of the limit, at least {least}", one.share.median >= least


def main() -> int:
    settings, console = tyro.cli(Limit, description=__doc__), Console()
    timing.one_thread()
    timing.keep_memory()
    shares = [measure(size, settings) for size in settings.sizes]
    title = f"forward and backward, LoRA, {settings.turns} turns; {timing.hardware()}"
    rows = ((s.size, s.tokens, f"{s.gflop:.2f}", s.speed, s.limit, s.share, s.of_onednn or "") for s in shares)
    heads = ("model", "tokens", "GFLOP", "GFLOP/s", "limit, GFLOP/s", "share", "of oneDNN's")
    timing.print_table(title, heads, rows, console)
    result = {"turns": settings.turns, "episodes": settings.episodes, "shares": [asdict(s) for s in shares]}
    return timing.finish(result, conditions(shares), settings.out, console)


if __name__ == "__main__":
    sys.exit(main())
