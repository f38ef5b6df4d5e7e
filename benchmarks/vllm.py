"""Tokens per second of the vLLM engine beside the default engine's, for 8, 32 and 128 sessions with a LoRA adapter.

    .venv-vllm/bin/python benchmarks/vllm.py --out benchmarks/results/vllm.json

Every engine plays the same made-up episodes of several turns; what is read differs, so that nothing is shared between
sessions. vLLM runs with the project's own draws and with its own sampler. The ratio is the default engine's time over
vLLM's, round by round: above 1 vLLM is faster. There is no condition: on a CPU the default engine is meant to win.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tyro
from peft import PeftModel
from rich.console import Console

from agents.engine.hf import HFEngine
from agents.engine.registry import Opening
from agents.engine.vllm.kind import VLLM
from agents.engine.vllm.settings import VLLMSettings
from agents.model.actor_critic import ActorCritic
from agents.model.settings import LoraSettings
from agents.tiny.model import build_model
from agents.tiny.settings import TinySettings
from agents.tiny.tokenizer import build_tokenizer
from benchmarks import sampled
from benchmarks.timing import Spread, finish, interleaved, one_thread, print_table, ratio
from benchmarks.variants import base_model
from runners.doctor import processor

SESSIONS = (8, 32, 128)
DEFAULT, OWN, NATIVE = "hf", "vllm, own draws", "vllm, native"


@dataclass(frozen=True)
class VLLMCost:
    """Measure what the vLLM engine costs."""

    models: tuple[str, ...] = ("tiny",)
    """Shapes with random weights: tiny, or one of `variants`, such as 5M."""
    rounds: int = 3
    """How often everything is measured."""
    turns: int = 4
    """Turns of an episode; each reads 30 tokens and samples 16."""
    out: Path = Path("benchmarks/results/vllm.json")
    """File for the result."""


def models(name: str, folder: Path) -> PeftModel:
    """A model with random weights, saved in ``folder`` and wrapped in LoRA."""
    base = base_model(name) if name != "tiny" else build_model(build_tokenizer(["a b c d"], []), TinySettings(), seed=0)
    base.eval().save_pretrained(folder)
    model = ActorCritic(base, LoraSettings(), critic=None).model
    assert isinstance(model, PeftModel)
    return model


def measure(name: str, settings: VLLMCost) -> dict[str, Any]:
    """By number of sessions and engine: tokens per second, and the ratio to the default engine."""
    from agents.engine.vllm.samplers import NativeSampler

    with TemporaryDirectory() as folder:
        model = models(name, Path(folder))
        vocabulary = model.config.vocab_size
        length = settings.turns * 46 + 1
        default = HFEngine(model, [], max_length=length, slots=max(SESSIONS))
        engine: Any = VLLM.open(Opening(model, folder, [], length, max(SESSIONS), "cpu"), VLLMSettings())
    own = engine.sampler
    native = NativeSampler(own, VLLMSettings().top_logprobs)
    result: dict[str, Any] = {"describe": engine.describe()}
    for sessions in SESSIONS:
        todo = sampled.made_up(sessions, settings.turns, 30, 16, vocabulary)

        def by_vllm(sampler: Any, todo: list[sampled.Episode] = todo) -> sampled.Done:
            engine.sampler = sampler
            return sampled.with_engine(engine, todo)

        def by_default(todo: list[sampled.Episode] = todo) -> sampled.Done:
            return sampled.with_engine(default, todo)

        programs: Mapping[str, Callable[[], object]] = {
            DEFAULT: by_default,
            OWN: lambda: by_vllm(own),
            NATIVE: lambda: by_vllm(native),
        }
        times = interleaved(programs, settings.rounds)
        count = sessions * settings.turns * 16
        result[str(sessions)] = {
            way: {
                "tokens_per_s": asdict(Spread.of([count / t for t in times[way]])),
                "times": asdict(ratio(times[DEFAULT], times[way])),
            }
            for way in times
        }
    engine.close()
    return result


def main() -> None:
    settings = tyro.cli(VLLMCost)
    console = Console()
    one_thread()
    result = {name: measure(name, settings) for name in settings.models}
    rows = [
        (f"{name}, {sessions} sessions: {way}", Spread(**row["tokens_per_s"]).median, str(Spread(**row["times"])))
        for name, found in result.items()
        for sessions in map(str, SESSIONS)
        for way, row in found[sessions].items()
    ]
    print_table("tokens per second", ("engine", "tokens/s", "times hf"), rows, console)
    whole = {"models": result, "processor": next(processor()).text}
    sys.exit(finish(whole, (), settings.out, console))


if __name__ == "__main__":
    main()
