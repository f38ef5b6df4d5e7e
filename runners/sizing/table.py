"""What ``turnwise doctor --model`` prints."""

from collections.abc import Iterator
from typing import Any

from runners.settings.run_settings import RunSettings
from runners.sizing.footprint import Footprint
from runners.sizing.machines import Machine

GIB = 2**30
ROOM = 0.9
"""Share of a memory that a run may take: the rest is for kernels, fragments and the CUDA context."""


def figures(found: Footprint, machine: Machine, settings: RunSettings) -> dict[str, Any]:
    """The estimate as plain values."""
    return {
        "model": settings.train.model,
        "machine": {"name": machine.name, "bytes": machine.bytes},
        **vars(found),
        "total": found.total,
        "fits": fits(found, machine),
    }


def fits(found: Footprint, machine: Machine) -> bool:
    return found.total <= ROOM * machine.bytes


def lines(found: Footprint, machine: Machine, settings: RunSettings) -> Iterator[str]:
    """The estimate as text."""
    train = settings.train
    how = f"{train.dtype}{'' if train.quantize == 'none' else f', {train.quantize}'}"
    kept = "inputs of layers kept" if train.gradient_checkpointing else "all activations kept"
    yield f"{train.model}: {found.parameters / 1e9:.2f}B parameters, {found.trained / 1e6:.1f}M trained, {train.algo}"
    rows = {
        f"weights ({how})": found.weights,
        f"adapter and optimiser (rank {settings.lora.rank})": found.adapter,
        "the engine's copies of weights": found.engine,
        f"keys and values ({train.slots} slots of {settings.react.max_tokens} tokens)": found.cache,
        f"a pass that learns ({train.token_budget} tokens, {kept})": found.learning,
        "a step that samples": found.sampling,
    }
    for name, value in rows.items():
        yield f"  {value / GIB:8.2f} GiB  {name}"
    verdict = "fits" if fits(found, machine) else "does not fit"
    yield f"  {found.total / GIB:8.2f} GiB  at most at once; learning and sampling take turns"
    yield f"  {verdict} {machine.name} ({machine.bytes / GIB:.1f} GiB, a tenth of which is left free)"
    yield f"  {found.flops_token / 1e9:8.2f} GFLOP a token that is learned from, attention left out"
    if train.backend[1]:
        yield f"  each of the workers ({train.workers}) takes weights, keys and values of its own beside this"
