"""Whole runs on a GPU with models of real size: seconds of each phase, and peak memory beside what the doctor says.

    python benchmarks/gpu_run.py                # Qwen3-0.6B and 4B with random weights; needs CUDA
    python benchmarks/gpu_run.py --quick        # a tiny shape on the CPU, to see that the program works

Each run plays the wiki with Self-AC, 32 slots and answers of 32 tokens, in bfloat16, layers checkpointed. Random
weights answer with noise, so nothing is learned; every answer is as long as it may be. The first update is left
out of the seconds: kernels are compiled in it. Exits with 1 where engine and trainer differ, or where the estimate of
``turnwise doctor --model`` is more than 15 % away from the peak of the allocator.
"""

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import torch
import tyro
from rich.console import Console
from transformers import Qwen3ForCausalLM

from benchmarks import timing
from benchmarks.gpu import Shape, chosen, config_of
from runners.cloning.packaged import PLACE
from runners.sizing.footprint import footprint
from runners.train import begin

LIMIT = 0.15
GAP = 0.01
"""Of log-probabilities in bfloat16, on average."""
PHASES = ("rollout", "forward", "update", "other")
"""Of an update, by the names that ``metrics.jsonl`` has for their seconds."""


@dataclass(frozen=True)
class GpuRun:
    """Seconds and memory of whole runs on a GPU."""

    sizes: tuple[str, ...] = ("0.6B", "4B")
    """Models, by the names of their shapes."""
    updates: int = 4
    """Updates of each run; the first is not counted."""
    episodes: int = 32
    """Episodes of an update."""
    answer: int = 32
    """Most tokens of an answer, which random weights use up."""
    quick: bool = False
    """A smoke run on the CPU: a tiny model and few episodes, no condition on memory."""
    out: Path = Path("benchmarks/results/gpu_run.json")
    """File for the result."""


@dataclass(frozen=True)
class Measured:
    """One run."""

    size: str
    attention: str
    seconds: dict[str, float]
    """Of each phase of an update, in the median."""
    sampled: float
    """Tokens of answers in an update, in the median."""
    sampled_per_second: float
    gap: float
    """How far the engine's log-probabilities are from the trainer's, on average."""
    peak: int | None
    """Most bytes that the allocator gave out; None on the CPU."""
    said: int
    """Bytes that the doctor expects."""

    @property
    def off(self) -> float:
        """How far the estimate is from the peak, as a share of the peak; above 0 it is too high."""
        return self.said / self.peak - 1 if self.peak else 0.0


def folder_of(shape: Shape, folder: Path, device: str) -> Path:
    """A model of this shape with random weights, and the tokenizer of the tiny model."""
    config = config_of(shape)
    config.eos_token_id, config.pad_token_id = 776, 775
    with torch.random.fork_rng(), torch.device(device):
        torch.manual_seed(0)
        Qwen3ForCausalLM._from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(PLACE / "wiki" / name, folder)
    return folder


def run(size: str, shape: Shape, settings: GpuRun, place: Path, console: Console) -> Measured:
    """Trains, and reads what the run wrote."""
    device = "cpu" if settings.quick else "cuda"
    model = folder_of(shape, place / "model", device)
    argv = ["--env", "wiki", "--algo", "selfac", "--model", str(model), "--device", device, "--dtype", "bfloat16"]
    argv += ["--gradient-checkpointing", "--updates", str(settings.updates), "--episodes", str(settings.episodes)]
    argv += ["--slots", "32", "--eval-every", "0", "--test-tasks", "0", "--save-every", "100", "--out", f"{place}/run"]
    argv += ["--react.max-action-tokens", str(settings.answer)]
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    with begin(argv, console) as training:
        said = footprint(training.settings, training.model.causal_model.config, gpu=device == "cuda").total
        training.run()
        attention = f"{training.model.attention}, {training.model.how}"
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else None
    lines = map(json.loads, (place / "run" / "metrics.jsonl").read_text("utf-8").splitlines())
    rows: list[dict[str, Any]] = [row for row in lines if row["kind"] == "update"][1:]
    middle = {name: median(row[name] for row in rows) for name in rows[0] if isinstance(rows[0][name], float | int)}
    seconds = {phase: middle[f"seconds_{phase}"] for phase in PHASES}
    tokens = middle["sampled_tokens_per_s"]
    return Measured(
        size, attention, seconds, tokens * middle["seconds_rollout"], tokens, middle["mismatch_mean_abs"], peak, said
    )


def conditions(runs: list[Measured]) -> Iterator[tuple[str, bool]]:
    """What must hold, each with whether it does."""
    for one in runs:
        yield f"{one.size}: engine and trainer are {one.gap:.4f} apart, at most {GAP}", one.gap <= GAP
        if one.peak:
            yield f"{one.size}: the estimate of memory is {one.off:+.0%} off, at most 15 %", abs(one.off) <= LIMIT


def row(one: Measured) -> list[object]:
    peak = f"{one.peak / 2**30:.1f} GiB" if one.peak else ""
    times = [f"{one.seconds[phase]:.2f}" for phase in PHASES]
    return [one.size, *times, f"{one.sampled_per_second:,.0f}", f"{one.gap:.4f}", peak, f"{one.said / 2**30:.1f} GiB"]


def main() -> None:
    settings, console = tyro.cli(GpuRun, description=__doc__), Console(width=120)
    device, shapes = chosen(settings.sizes, settings.quick)
    title = f"whole runs, wiki, Self-AC, {settings.episodes} episodes an update, bfloat16, {timing.hardware(device)}"
    headings = ("", *(f"{phase}, s" for phase in PHASES), "sampled tokens/s", "gap", "peak", "doctor says")
    runs: list[Measured] = []
    status = 0
    for size, shape in shapes.items():
        with TemporaryDirectory() as place:
            runs.append(run(size, shape, settings, Path(place), console))
        # After each size: time on a GPU may end early.
        timing.print_table(title, headings, map(row, runs[-1:]), console)
        told = [asdict(one) | {"off": one.off} for one in runs]
        result = {"episodes": settings.episodes, "answer": settings.answer, "runs": told}
        status = timing.finish(result, conditions(runs), settings.out, console, device)
    sys.exit(status)


if __name__ == "__main__":
    main()
