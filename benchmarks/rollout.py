"""The cost of playing: sampling over many turns, and the wiki environment.

    python benchmarks/rollout.py --out benchmarks/results/rollout.json

Sampling: our engine, which keeps what it has read, against ``generate()`` called once per turn, on the same model, the
same new tokens and the same number of sampled tokens; as an extra row, ``generate()`` that keeps its cache. The wiki:
steps per second on one wiki of 20,000 pages, and how long a search and a list of similar titles take.
Exits with 1 when a condition fails.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tyro
from rich.console import Console
from transformers import PreTrainedModel

from agent_envs.wiki.env import WikiEnv
from agents.engine.hf import HFEngine
from agents.rollout.play import rollout
from agents.text.settings import ChatSettings
from agents.tree.episode import Job
from benchmarks import sampled, wiki_steps
from benchmarks.timing import Spread, finish, interleaved, one_thread, print_table, ratio, seconds
from benchmarks.variants import VOCABULARY, base_model
from runners.cloning.settings import PretrainSettings
from runners.evaluation.tasks import pick_tasks
from runners.loading.base_model import BaseSpec, load_base, source_of

AT_LEAST = 1.8
"""How many times the tokens of each other way our engine must sample in a second."""
STEPS_AT_LEAST, SEARCH_AT_MOST, SIMILAR_AT_MOST = 5000.0, 1.0, 1.0
"""Steps per second of the wiki; milliseconds of the slowest twentieth of its searches and of its similar titles."""
ENGINE, KEPT, LOOP = "engine", "generate, cache kept", "loop, cache kept"
BATCHES = (16, 32, 64, 128)
"""Rows per call among which ``generate()`` gets its best, where episodes differ in length."""


@dataclass(frozen=True)
class RolloutCost:
    """Measure what sampling and the wiki environment cost."""

    episodes: Path | None = None
    """An episodes.jsonl of a run of the tiny model on the wiki; without it a batch is played first."""
    rounds: int = 5
    """How often everything is measured."""
    quick: bool = False
    """A few tokens, pages and rounds: shows that the program runs, and nothing else."""
    out: Path = Path("benchmarks/results/rollout.json")
    """File for the result."""


@dataclass(frozen=True)
class Workload:
    """Episodes to sample, and the sizes of batch that ``generate()`` tries."""

    model: PreTrainedModel
    todo: Sequence[sampled.Episode]
    batches: tuple[int, ...]

    @property
    def samples(self) -> int:
        return sum(turn.samples for episode in self.todo for turn in episode)

    @property
    def reads(self) -> int:
        return sum(len(turn.reads) for episode in self.todo for turn in episode)


def workloads(settings: RolloutCost, console: Console) -> Iterator[tuple[str, Workload]]:
    """What is sampled, by name."""
    if settings.quick:
        small = sampled.endless(base_model("2M").eval())
        yield "uneven episodes", Workload(small, sampled.uneven(6, VOCABULARY), (3, 6))
        yield "8 turns of 4 + 6, batch 4", Workload(small, sampled.made_up(4, 8, 4, 6, VOCABULARY), (4,))
        return
    model, todo = tiny(settings.episodes, console)
    yield "recorded wiki episodes, tiny model", Workload(model, todo, BATCHES)
    model = sampled.endless(base_model("5M").eval())
    for batch in (8, 64):
        todo = sampled.made_up(batch, 8, 40, 60, VOCABULARY)
        yield f"8 turns of 40 + 60, batch {batch}, 5M", Workload(model, todo, (batch,))


def tiny(path: Path | None, console: Console, count: int = 128) -> tuple[PreTrainedModel, list[sampled.Episode]]:
    """The tiny model, and episodes that it played on the default wiki."""
    env = WikiEnv()
    source = source_of("tiny", [env], PretrainSettings(), ChatSettings(), console)
    base = load_base(BaseSpec(source, "cpu", "float32", ChatSettings()))
    if path is not None:
        return sampled.endless(base.model), sampled.read_recorded(path, 1, count)
    engine = HFEngine(base.model, base.chat.stop_ids, max_length=2048, slots=count)
    jobs = [Job(task) for task in pick_tasks(env, "train", count)]
    played = rollout(WikiEnv, engine, base.chat, jobs).episodes
    todo = [
        tuple(
            sampled.Turn(before.tokens, len(action.tokens))
            for before, (action, _) in zip([e.root, *(state for _, state in e.turns)], e.turns, strict=False)
        )
        for e in played
    ]
    return sampled.endless(base.model), todo


def ways(work: Workload, engine: HFEngine) -> dict[str, Callable[[], sampled.Done]]:
    """Every way to sample the workload."""
    result: dict[str, Callable[[], sampled.Done]] = {ENGINE: lambda: sampled.with_engine(engine, work.todo)}
    for batch in work.batches:
        result[f"generate, {batch} rows"] = lambda b=batch: sampled.with_generate(work.model, work.todo, b)  # type: ignore[misc]
    result[KEPT] = lambda: sampled.with_kept_cache(work.model, work.todo)
    result[LOOP] = lambda: sampled.with_loop(work.model, work.todo)
    return result


def measure_sampling(work: Workload, rounds: int) -> dict[str, Any]:
    """Tokens per second of every way, and how many times the engine's they are."""
    engine = sampled.engine_of(work.model, work.todo)
    programs = ways(work, engine)
    counts = {name: program().sampled for name, program in programs.items()}
    encoded, reused = engine.encoded_tokens, engine.reused_tokens
    times = interleaved(programs, rounds, warm=0)  # counting was the warm-up
    rate = {name: Spread.of([counts[name] / t for t in times[name]]) for name in times}
    best = max((name for name in rate if name not in (ENGINE, KEPT, LOOP)), key=lambda name: rate[name].median)
    return {
        "rows": {
            name: {"tokens_per_s": asdict(rate[name]), "times": asdict(ratio(times[name], times[ENGINE]))}
            for name in times
        },
        "best": best,
        "sampled": counts,
        "asked": work.samples,
        "read": work.reads,
        "engine_encoded": encoded,
        "engine_reused": reused,
        "encoded_by_generate": sum(
            sum(len(t.reads) + t.samples for t in episode[:n]) + len(episode[n].reads) + episode[n].samples - 1
            for episode in work.todo
            for n in range(len(episode))
        ),
    }


def measure_wiki(rounds: int, pages: int, episodes: int) -> dict[str, Any]:
    """Steps per second, in process time and on the wall, and single calls in milliseconds."""
    names = wiki_steps.titles(pages)
    with TemporaryDirectory(prefix="turnwise-wiki-") as folder:
        backend = wiki_steps.write_wiki(Path(folder), pages)
        env = wiki_steps.environment(backend)
        checked = wiki_steps.episodes(names, 50, -1)
        right = sum(wiki_steps.answered(env, checked).values()) / (50 * len(wiki_steps.PATTERN))
        own, wall = [], []
        for seed in range(rounds):
            todo = wiki_steps.episodes(names, episodes, seed)
            started = time.perf_counter()
            own.append(seconds(lambda todo=todo: wiki_steps.play(env, todo)))  # type: ignore[misc]
            wall.append(time.perf_counter() - started)
        steps = episodes * len(wiki_steps.PATTERN)
        calls = {
            what: wiki_steps.latencies(backend, what, list(wiki_steps.calls(names, what, 2000, 1)))
            for what in ("search", "similar")
        }
    return {
        "pages": pages,
        "steps": steps,
        "steps_per_s": asdict(Spread.of([steps / t for t in own])),
        "wall_steps_per_s": asdict(Spread.of([steps / t for t in wall])),
        "answered_as_meant": right,
        **calls,
    }


def conditions(sampling: Mapping[str, Mapping[str, Any]], wiki: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """What must hold, each with whether it does."""
    for name, result in sampling.items():
        asked = result["asked"]
        yield f"{name}: every way samples {asked} tokens", set(result["sampled"].values()) == {asked}
        for way in (result["best"], KEPT, LOOP):
            times = result["rows"][way]["times"]["median"]
            yield f"{name}: engine {times:.2f} times {way}, at least {AT_LEAST}", times >= AT_LEAST
    steps = wiki["steps_per_s"]["median"]
    yield f"wiki: {steps:.0f} steps/s, at least {STEPS_AT_LEAST:.0f}", steps >= STEPS_AT_LEAST
    yield "wiki: every turn is answered as its kind is meant to be", wiki["answered_as_meant"] == 1
    for what, most in (("search", SEARCH_AT_MOST), ("similar", SIMILAR_AT_MOST)):
        yield f"wiki: {what} p95 {wiki[what]['p95_ms']:.2f} ms, at most {most}", wiki[what]["p95_ms"] <= most


def show(sampling: Mapping[str, Mapping[str, Any]], wiki: Mapping[str, Any], console: Console) -> None:
    rows = []
    for name, result in sampling.items():
        for way, row in result["rows"].items():
            mark = " (its best)" if way == result["best"] and len(result["rows"]) > 4 else ""
            rate, times = Spread(**row["tokens_per_s"]), Spread(**row["times"])
            limit = result["encoded_by_generate"] / result["engine_encoded"] if way.endswith("rows") else 1.0
            rows.append((f"{name}: {way}{mark}", f"{rate.median:.0f} [{rate.low:.0f}, {rate.high:.0f}]", times, limit))
    columns = ("", "sampled tokens/s", "engine is … times as fast", "encoded, times the engine's")
    print_table("sampling", columns, rows, console)
    steps, wall = Spread(**wiki["steps_per_s"]), Spread(**wiki["wall_steps_per_s"])
    lines = [
        ("steps per second, process time", f"{steps.median:.0f} [{steps.low:.0f}, {steps.high:.0f}]"),
        ("steps per second, wall", f"{wall.median:.0f} [{wall.low:.0f}, {wall.high:.0f}]"),
    ]
    lines += [
        (f"{what}: p50, p95 ms", f"{wiki[what]['p50_ms']:.2f}, {wiki[what]['p95_ms']:.2f}")
        for what in ("search", "similar")
    ]
    print_table(f"one wiki of {wiki['pages']} pages", ("", ""), lines, console)


def main() -> None:
    settings = tyro.cli(RolloutCost)
    one_thread()
    console = Console()
    rounds = 2 if settings.quick else settings.rounds
    pages, episodes = (300, 20) if settings.quick else (20_000, 1000)
    sampling = {name: measure_sampling(work, rounds) for name, work in workloads(settings, console)}
    wiki = measure_wiki(rounds, pages, episodes)
    show(sampling, wiki, console)
    judged = list(conditions(sampling, wiki))
    status = finish({"sampling": sampling, "wiki": wiki}, judged, settings.out, console)
    sys.exit(0 if settings.quick else status)


if __name__ == "__main__":
    main()
