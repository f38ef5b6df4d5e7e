"""What training and sampling take in memory on a CPU, against the estimate of ``turnwise doctor --model``.

    python benchmarks/memory.py               # all shapes, some minutes on one thread
    python benchmarks/memory.py --quick       # one shape

Every case is measured in a process of its own: the peak of its resident memory above what it held once everything was
imported and a small model had been run. What Python itself takes differs by some 20 MB from one process to the next,
so the cases are large enough for that not to matter. The models have random weights. Learning: two rows of the token
budget each, forward, backward and a step of AdamW. Sampling: every slot filled to its last token. Prints one table and
exits with 1 where an estimate is more than 15 % off, or where the estimate without one of its terms would still be
within 15 %.
"""

import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import torch
import tyro
from rich.console import Console
from transformers import AutoModelForCausalLM, Qwen3Config

from agents.engine.base import Request
from agents.engine.hf import HFEngine
from agents.model.actor_critic import ActorCritic
from agents.model.attention.onednn_linear import widen
from agents.tree import Forward, Kind, Node
from agents.tree.chunked_backward import backward
from agents.tree.packing import pack
from benchmarks import timing
from runners.loading.allocator import give_back
from runners.loading.base_model import actor_on
from runners.settings.run_settings import RunSettings, read_settings
from runners.sizing.footprint import Footprint, config_of, footprint

LIMIT = 0.15
SLOWEST = 7200
"""Seconds of a case; on a busy machine bfloat16 takes more than fifteen minutes."""
PROMPT, SHADOW, ACTION, OBSERVATION = 60, 20, 50, 70
"""Tokens of the rows that are measured; they are not those that the estimate supposes."""
SHAPES = {
    "2M": (512, 192, 512, 4, 4, 2, 48),
    "5M": (2048, 256, 768, 6, 4, 2, 64),
    "90M": (8192, 768, 2048, 12, 12, 4, 64),
    "90M, vocabulary of 65k": (65536, 512, 1536, 12, 8, 4, 64),
}
"""Vocabulary, width, feed-forward width, layers, heads, key heads, width of a head."""


@dataclass(frozen=True)
class Case:
    """What is measured."""

    shape: str
    tokens: int
    checkpointing: bool = False
    dtype: str = "float32"
    slots: int = 0
    """Above 0: sampling with this many slots of ``tokens`` tokens, and not learning."""


QUICK = (Case("2M", 6000), Case("2M", 6000, checkpointing=True))
CASES = (
    *QUICK,
    *(Case("5M", 8000, checkpointing=c) for c in (False, True)),
    *(Case("90M", 800, checkpointing=c) for c in (False, True)),
    Case("90M, vocabulary of 65k", 800, checkpointing=True),
    Case("90M", 400, checkpointing=True, dtype="bfloat16"),
    Case("5M", 400, slots=64),
)


@dataclass(frozen=True)
class Measured:
    """A case with its result, in bytes."""

    case: Case
    peak: int
    terms: dict[str, int]
    """The estimate, part by part."""

    @property
    def estimate(self) -> int:
        return sum(self.terms.values())

    @property
    def off(self) -> float:
        return self.estimate / self.peak - 1


@dataclass(frozen=True)
class Memory:
    """Estimated and measured memory of a CPU run."""

    quick: bool = False
    """Two cases only."""
    out: Path = Path("benchmarks/results/memory.json")
    """File for the result."""


def settings_of(case: Case, folder: str) -> RunSettings:
    vocabulary, width, inner, layers, heads, shared, each = SHAPES[case.shape]
    Qwen3Config(
        vocab_size=vocabulary, hidden_size=width, intermediate_size=inner, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=shared, head_dim=each, tie_word_embeddings=True,
    ).save_pretrained(folder)  # fmt: skip
    slots = ["--slots", str(case.slots), "--react.max-tokens", str(case.tokens)] if case.slots else []
    checkpointing = "--gradient-checkpointing" if case.checkpointing else "--no-gradient-checkpointing"
    budget = ["--token-budget", str(case.tokens), "--dtype", case.dtype, checkpointing]
    return read_settings(["--env", "identity", "--model", folder, *budget, *slots])


def terms_of(case: Case, found: Footprint) -> dict[str, int]:
    """The parts of an estimate that a case has."""
    names = ("weights", "engine", "cache", "sampling") if case.slots else ("weights", "adapter", "learning")
    return {name: getattr(found, name) for name in names if getattr(found, name)}


def measure(case: Case) -> Measured:
    """In a process of its own."""
    run = [sys.executable, "-m", "benchmarks.memory_child", json.dumps(asdict(case))]
    told = subprocess.run(
        run, capture_output=True, text=True, timeout=SLOWEST, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    if told.returncode:
        raise RuntimeError(told.stderr[-2000:])
    with tempfile.TemporaryDirectory() as folder:
        settings = settings_of(case, folder)
        found = footprint(settings, config_of(folder), gpu=False)
    return Measured(case, int(told.stdout.split()[-1]), terms_of(case, found))


def child(case: Case) -> int:
    """Peak above the baseline, of this process."""
    torch.set_num_threads(1)
    give_back()
    with tempfile.TemporaryDirectory() as folder:
        _run(Case("2M", 200, case.checkpointing, case.dtype, min(case.slots, 2)), folder)
        gc.collect()
        before = _resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        _run(case, folder)
    return _resident("VmHWM") - before


def _resident(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def _run(case: Case, folder: str) -> None:
    settings = settings_of(case, folder)
    model = AutoModelForCausalLM.from_config(config_of(folder), dtype=getattr(torch, case.dtype)).eval()
    widen(model)
    actor = actor_on(model, settings)
    _sample(case, actor) if case.slots else _learn(case, actor)


def _learn(case: Case, actor: ActorCritic) -> None:
    vocabulary = actor.causal_model.config.vocab_size
    row = pack([_episode(case.tokens, vocabulary) for _ in range(2)], _some(SHADOW, vocabulary))
    trained = [*actor.policy_parameters(), *actor.value_parameters()]
    optimizer = torch.optim.AdamW(trained)
    for _ in range(2):  # its state is there from the first step on
        backward(actor, row, _loss, len(row) // 2)
        optimizer.step()
        optimizer.zero_grad()


@dataclass(frozen=True)
class _Loss:
    total: torch.Tensor


def _loss(new: Forward) -> _Loss:
    assert new.value_S is not None
    return _Loss(new.logp_T.sum() + new.value_S.sum())


def _some(n: int, vocabulary: int) -> tuple[int, ...]:
    return tuple(7 * i % vocabulary for i in range(n))


def _episode(tokens: int, vocabulary: int) -> Node:
    root = state = Node(Kind.STATE, _some(PROMPT, vocabulary))
    for _ in range(max(1, (tokens - PROMPT - SHADOW) // (ACTION + OBSERVATION + SHADOW))):
        action = state.add(Node(Kind.ACTION, _some(ACTION, vocabulary), logp=(0.0,) * ACTION))
        state = action.add(Node(Kind.STATE, _some(OBSERVATION, vocabulary)))
    return root


def _sample(case: Case, actor: ActorCritic) -> None:
    vocabulary = actor.causal_model.config.vocab_size
    engine = HFEngine(actor.model, [], max_length=case.tokens, slots=case.slots, share_prefixes=False)
    for session in range(case.slots):
        engine.submit(Request(session, _some(case.tokens - 2, vocabulary), 2, seed=session))
    while engine.pending:
        engine.step()


def conditions(cells: list[Measured]) -> Iterator[tuple[str, bool]]:
    for cell in cells:
        yield f"{shown(cell.case)}: the estimate is off by {cell.off:+.1%}", abs(cell.off) <= LIMIT
        largest = max(cell.terms, key=lambda name: cell.terms[name])
        without = (cell.estimate - cell.terms[largest]) / cell.peak - 1
        yield f"… without its term {largest} by {without:+.1%}", abs(without) > LIMIT


def shown(case: Case) -> str:
    what = f"sampling, {case.slots} slots" if case.slots else "learning"
    return f"{case.shape}, {case.tokens} tokens, {what}{', checkpointing' * case.checkpointing}, {case.dtype}"


def main() -> None:
    settings = tyro.cli(Memory)
    console = Console(width=170)
    cells = []
    for case in QUICK if settings.quick else CASES:
        cells.append(measure(case))
        console.print(f"{shown(case)}: off by {cells[-1].off:+.1%}", highlight=False)
    rows = [(shown(c.case), f"{c.peak / 2**20:.0f}", f"{c.estimate / 2**20:.0f}", f"{c.off:+.1%}") for c in cells]
    timing.print_table(
        f"resident memory above the baseline, MiB; {timing.hardware('cpu')}",
        ("case", "measured", "estimated", "off"), rows, console,
    )  # fmt: skip
    result = {"cells": [{**asdict(c), "estimate": c.estimate, "off": c.off} for c in cells]}
    sys.exit(timing.finish(result, conditions(cells), settings.out, console, "cpu"))


if __name__ == "__main__":
    main()
