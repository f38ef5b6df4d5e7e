"""Training passes of Qwen3 shapes on a GPU: tokens per second, utilisation and peak memory.

    python benchmarks/gpu.py                    # Qwen3-0.6B, 4B and 8B with random weights; needs CUDA
    python benchmarks/gpu.py --quick            # tiny shapes on the CPU, to see that the program works

Forward and backward in bfloat16, LoRA in float32, layers checkpointed. Episodes of 16 turns are read as GRPO reads
them and with Self-AC's critic prompts; groups as one tree and as padded rows, with prompts three times as long as the
answers. The model's FLOPs are those of forward and backward through frozen weights: nothing that is computed again, and
no gradient of a frozen weight. Exits with 1 where a condition does not hold.
"""

import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import torch
import tyro
from rich.console import Console
from torch import Tensor
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from agents.model.actor_critic import ActorCritic
from agents.model.settings import CriticSettings, LoraSettings
from agents.tree import Batch
from agents.tree.packing import pack
from benchmarks import timing, variants
from benchmarks.timing import Spread

VOCABULARY = 151_936
PEAK_TFLOPS = {"H200": 989.0, "H100": 989.0, "A100": 312.0, "L40S": 362.0, "RTX 4090": 165.0}
"""Of dense bfloat16 products, by what the name of a GPU holds."""


@dataclass(frozen=True)
class Shape:
    """Layers of a Qwen3; heads are 128 wide, or ``head`` wide."""

    layers: int
    width: int
    heads: int
    key_heads: int
    mlp: int
    tied: bool = True
    head: int = 128
    vocabulary: int = VOCABULARY


SHAPES = {
    "0.6B": Shape(28, 1024, 16, 8, 3072),
    "4B": Shape(36, 2560, 32, 8, 9728),
    "8B": Shape(36, 4096, 32, 8, 12_288, tied=False),
}
TINY = {"tiny": Shape(2, 64, 4, 2, 128, head=16, vocabulary=variants.VOCABULARY)}


@dataclass(frozen=True)
class Gpu:
    """Tokens per second, utilisation and memory of training passes."""

    sizes: tuple[str, ...] = tuple(SHAPES)
    """Models, by the names of their shapes."""
    episodes: int = 4
    """Episodes of 16 turns in a pass, about 1,700 tokens each."""
    answer: int = 512
    """Tokens of each answer of a group; its prompt is three times as long."""
    rounds: int = 5
    """How often everything is timed, in turn."""
    peak_tflops: float = 0.0
    """Products per second that the GPU can do in bfloat16; 0 looks it up by its name."""
    quick: bool = False
    """A smoke run on the CPU: a tiny model and short episodes, no condition on speed."""
    out: Path = Path("benchmarks/results/gpu.json")
    """File for the result."""


@dataclass(frozen=True)
class Cell:
    """One way of computing one workload."""

    size: str
    workload: str
    way: str
    tokens: int
    """Tokens that went through the model, padding included."""
    flops: float
    """Of the tree, whatever the way."""
    off: float | None
    """Padded rows: how far their log-probabilities are from the tree's; see ``apart``."""
    seconds: Spread | None
    """None where memory ran out."""
    memory: int | None
    """Peak bytes on the GPU, weights included."""


def config_of(shape: Shape) -> Qwen3Config:
    """Of a model with this shape."""
    return Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_heads,
        head_dim=shape.head,
        intermediate_size=shape.mlp,
        max_position_embeddings=40_960,
        tie_word_embeddings=shape.tied,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )


def model_of(shape: Shape, device: str) -> ActorCritic:
    """Made on the device, in bfloat16."""
    with torch.random.fork_rng(), torch.device(device):
        torch.manual_seed(0)
        base: PreTrainedModel = Qwen3ForCausalLM._from_config(config_of(shape), dtype=torch.bfloat16)
    model = ActorCritic(base, LoraSettings(), CriticSettings(), checkpointing=True)
    variants.wake(model)
    return model


def flops(model: ActorCritic, batch: Batch) -> float:
    """Of a pass and its backward: 2 + 2 for each weight and token, and attention's 4 + 8 for each pair and head."""
    config = model.causal_model.config
    table = config.vocab_size * config.hidden_size
    weights = sum(p.numel() for n, p in model.causal_model.named_parameters() if "lora_" not in n)
    layers = weights - table * (1 if config.tie_word_embeddings else 2)
    pairs = float((batch.pos_T + 1).sum())
    attention = 12 * pairs * config.num_attention_heads * config.head_dim * config.num_hidden_layers
    return 4.0 * layers * len(batch) + 4.0 * table * batch.action_rows.numel() + attention


def workloads(settings: Gpu, device: str) -> Iterator[tuple[str, dict[str, tuple[variants.Way, Batch]]]]:
    """(name, the ways with what each is given)."""
    rng = random.Random(0)
    turns = 2 if settings.quick else 16
    episodes = [variants.episode(turns, rng) for _ in range(settings.episodes)]
    chains, shadowed = (pack(episodes, prompt, device) for prompt in (None, variants.CRITIC_PROMPT))
    yield "episodes", {"grpo": (variants.packed, chains), "self-ac": (variants.packed, shadowed)}
    answer = 20 if settings.quick else settings.answer
    for group in (8, 16):
        batch = pack([variants.group(3 * answer, [answer] * group, rng)], device=device)
        yield f"group of {group}", {"tree": (variants.packed, batch), "padded": (variants.padded_rows, batch)}


def measure(model: ActorCritic, size: str, settings: Gpu, device: str) -> Iterator[Cell]:
    """All cells of one model."""
    for name, ways in workloads(settings, device):
        logp: dict[str, Tensor] = {}
        memory: dict[str, int | None] = {}
        for way, (compute, batch) in ways.items():
            try:
                logp[way], memory[way] = once(model, compute, batch, device)
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
        given = {way: ways[way] for way in logp}
        programs = {w: (lambda c=c, b=b: variants.step(c, model, b)) for w, (c, b) in given.items()}
        times = timing.interleaved(programs, settings.rounds, device)
        for way, (compute, batch) in ways.items():
            tokens = variants.encoded(compute, model, batch) if way in given else 0
            spread = Spread.of(times[way]) if way in given else None
            off = apart(logp["tree"], logp["padded"]) if way == "padded" and {"tree", "padded"} <= set(given) else None
            yield Cell(size, name, way, tokens, flops(model, batch), off, spread, memory.get(way))


def apart(ours_N: Tensor, theirs_N: Tensor) -> float:
    """How far log-probabilities of two ways are apart on average, in deviations of one of them between tokens."""
    return float((ours_N - theirs_N).abs().mean() / ours_N.std())


def once(model: ActorCritic, way: variants.Way, batch: Batch, device: str) -> tuple[Tensor, int | None]:
    """(log-probabilities of all actions, peak memory of a step); kernels are compiled before."""
    variants.step(way, model, batch)
    with torch.no_grad():
        logp_N = way(model, batch).logp_T[batch.action_rows]
    if device == "cpu":
        return logp_N, None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    variants.step(way, model, batch)
    torch.cuda.synchronize()
    return logp_N, torch.cuda.max_memory_allocated()


def conditions(cells: list[Cell], peak: float, quick: bool) -> Iterator[tuple[str, bool]]:
    """What must hold, each with whether it does."""
    by = {(c.size, c.workload, c.way): c for c in cells}
    for (size, workload, way), cell in by.items():
        if way == "padded" and cell.off is not None:
            other = by[size, workload, "tree"]
            yield (
                f"{size}, {workload}: tree and padded rows are {cell.off:.3f} deviations apart, at most 0.1",
                cell.off <= 0.1,
            )
            if workload == "group of 16" and not quick and cell.seconds and other.seconds:
                gain = cell.seconds.median / other.seconds.median
                yield f"{size}: a group of 16 is {gain:.2f} times as fast as padded rows, at least 3", gain >= 3
        if quick or not cell.seconds:
            continue
        if way == "self-ac" and (plain := by[size, workload, "grpo"]).seconds:
            over = cell.seconds.median / plain.seconds.median / (cell.tokens / plain.tokens)
            yield f"{size}: Self-AC takes {over:.3f} times its token ratio, at most 1.05", over <= 1.05
        if (size, way) == ("4B", "grpo") and peak:
            share = cell.flops / cell.seconds.median / peak / 1e12
            yield f"4B: {share:.0%} of the GPU's products, at least 40 %", share >= 0.4


def row(cell: Cell, peak: float) -> list[object]:
    name = f"{cell.size}, {cell.workload}, {cell.way}"
    if cell.seconds is None:
        return [name, "out of memory", "", "", ""]
    seconds = cell.seconds.median
    used = f"{cell.flops / seconds / peak / 1e12:.0%}" if peak else ""
    memory = f"{cell.memory / 2**30:.1f} GiB" if cell.memory else ""
    return [name, cell.tokens, f"{cell.tokens / seconds:,.0f}", used, memory]


def peak_of(settings: Gpu, device: str) -> float:
    """The GPU's products per second; 0 where they are not known."""
    if settings.peak_tflops or device == "cpu":
        return settings.peak_tflops
    name = torch.cuda.get_device_name()
    return next((peak for key, peak in PEAK_TFLOPS.items() if key in name), 0.0)


def chosen(sizes: Sequence[str], quick: bool) -> tuple[str, dict[str, Shape]]:
    """(device, models by their names). Ends the program where there is no GPU, or a name is unknown."""
    if not quick and not torch.cuda.is_available():
        sys.exit("error: no CUDA device is here: run it on a GPU, or --quick to try the program on the CPU")
    if unknown := sorted(set(sizes) - set(SHAPES)):
        sys.exit(f"error: --sizes {' '.join(unknown)}: there are {', '.join(SHAPES)}")
    return ("cpu", TINY) if quick else ("cuda", {size: SHAPES[size] for size in sizes})


def main() -> None:
    settings = tyro.cli(Gpu)
    device, shapes = chosen(settings.sizes, settings.quick)
    console, peak = Console(width=120), peak_of(settings, device)
    title = f"forward and backward, bfloat16, {timing.hardware(device)}"
    headings = ("", "tokens", "tokens/s", "utilisation", "peak memory")
    cells: list[Cell] = []
    status = 0
    for size, shape in shapes.items():
        model = model_of(shape, device)
        console.print(f"{size}: attention {model.attention}, {model.how}", highlight=False)
        cells += measure(model, size, settings, device)
        del model
        # After each size: time on a GPU may end early.
        timing.print_table(title, headings, (row(cell, peak) for cell in cells if cell.size == size), console)
        result = {"peak_tflops": peak, "cells": [asdict(cell) for cell in cells]}
        status = timing.finish(result, conditions(cells, peak, settings.quick), settings.out, console, device)
    sys.exit(status)


if __name__ == "__main__":
    main()
