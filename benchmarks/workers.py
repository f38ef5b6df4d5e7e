"""Rollout workers on Ray: two against one, what a new policy costs, and what an episode costs beyond its play.

    python benchmarks/workers.py --out benchmarks/results/workers.json

The same jobs are played in turn by the workers of `--workers 1` and `--workers 2`, which stay open. Two workers that
share nothing each play all of the jobs at once: what they gain over one is what this machine gives to a second busy
process. Then Ray begins, whose own processes take time, too, and one worker on it, two on it and one without it take
turns. A ratio or a difference is the median of those within a round. Figures of a busy machine say little: the
load is recorded. Exits with 1 when a condition fails.
"""

import gc
import hashlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tyro
from rich.console import Console
from safetensors.torch import save

from agent_envs import registry
from agents.engine import SamplingSettings
from agents.model.actor_critic import ActorCritic
from agents.tree.episode import Job
from benchmarks.timing import Spread, finish, one_thread, print_table, ratio
from runners.evaluation.tasks import pick_tasks
from runners.loading.base_model import load_base
from runners.run_folder.runs import base_of
from runners.settings.ray_settings import RaySettings
from runners.settings.run_settings import read_settings
from runners.workers.base import PlaySpec
from runners.workers.process import Connection, ProcessWorkers
from runners.workers.ray_cluster import RayCluster
from runners.workers.serve import WorkerSetup

TWO_AT_LEAST, PLAIN_AT_LEAST = 1.8, 1.7
"""How many times the episodes of one worker two must play in a second, on two idle processors: on Ray, and without. One
alone keeps more than one processor busy: its environments live in processes of their own."""
SYNC_AT_MOST, EPISODE_AT_MOST = 50.0, 2.0
"""Milliseconds that a new policy may take until it plays, and that an episode may cost more than in a process."""
Spawn: TypeAlias = Callable[[], Connection]


@dataclass(frozen=True)
class WorkersCost:
    """Measure what rollout workers on Ray cost."""

    env: str = "wiki"
    """Environment to play, with its tiny model."""
    episodes: int = 2048
    """Episodes of a measurement: enough portions that the wait for the last one weighs little."""
    portion: int = 32
    """Episodes that a worker plays side by side."""
    rounds: int = 9
    """How often everything is measured."""
    out: Path = Path("benchmarks/results/workers.json")
    """File for the result."""


class Measured:
    """One set of workers, and how long they took."""

    def __init__(self, workers: ProcessWorkers, adapter: bytes) -> None:
        self.workers, self.adapter, self.version = workers, adapter, -1
        workers.start()
        self.load()

    def load(self) -> None:
        self.version += 1
        self.workers.load(self.version, self.adapter, hashlib.sha256(self.adapter).hexdigest())

    def play(self, jobs: list[Job], portion: int) -> float:
        started = time.perf_counter()
        specs = [PlaySpec(tuple(jobs[i : i + portion]), SamplingSettings()) for i in range(0, len(jobs), portion)]
        played = [future.result() for future in [self.workers.submit(spec, self.version) for spec in specs]]
        assert sum(len(part.episodes) for part in played) == len(jobs)
        return time.perf_counter() - started

    def sync_ms(self, jobs: list[Job]) -> float:
        """Milliseconds by which one episode takes longer with a policy that was not loaded yet."""
        self.load()
        new = self.play(jobs, 1)
        return 1000 * (new - self.play(jobs, 1))


def at_once(programs: list[Measured], jobs: list[Job], portion: int) -> float:
    """Seconds until each of them has played all the jobs."""
    started = time.perf_counter()
    with ThreadPoolExecutor(len(programs)) as threads:
        list(threads.map(lambda program: program.play(jobs, portion), programs))
    return time.perf_counter() - started


def measure(settings: WorkersCost, console: Console) -> dict[str, Spread]:
    run = read_settings(["--env", settings.env, "--slots", str(settings.portion)])
    base = base_of(run, console, "cpu")
    setup = WorkerSetup(base, run.lora, run.play())
    adapter = save(dict(ActorCritic(load_base(base).model, run.lora, critic=None).policy_state()))
    tasks = pick_tasks(registry.make(*run.only_env("workers")), "train", settings.episodes, console)
    jobs = [Job(tasks[i % len(tasks)], i // len(tasks)) for i in range(settings.episodes)]
    with ExitStack() as opened:

        def begun(count: int, spawn: Spawn | None = None) -> Measured:
            workers = ProcessWorkers(setup, count, spawn)
            opened.callback(workers.close)
            program = Measured(workers, adapter)
            program.play(jobs, settings.portion)  # untimed
            return program

        one, pair, apart = begun(1), begun(2), begun(1)
        gc.freeze()  # as a training run does
        alone, two, both = [], [], []
        for _ in range(settings.rounds):
            alone.append(one.play(jobs, settings.portion))
            two.append(pair.play(jobs, settings.portion))
            both.append(at_once([one, apart], jobs, settings.portion))
        pair.workers.close()
        apart.workers.close()
        cluster = RayCluster(RaySettings(), 3)
        opened.callback(cluster.close)
        cluster.open()
        one_on_ray, pair_on_ray = begun(1, cluster.spawn), begun(2, cluster.spawn)
        beside, one_ray, two_ray, sync = [], [], [], []
        for _ in range(settings.rounds):
            beside.append(one.play(jobs, settings.portion))
            one_ray.append(one_on_ray.play(jobs, settings.portion))
            two_ray.append(pair_on_ray.play(jobs, settings.portion))
            sync.append(one_on_ray.sync_ms(jobs[:1]))
    beyond = [1000 * (a - b) / len(jobs) for a, b in zip(one_ray, beside, strict=True)]
    return {
        "episodes a second, two workers over one": ratio(one_ray, two_ray),
        "the same without Ray": ratio(alone, two),
        "the same, two workers that share nothing": ratio([2 * seconds for seconds in alone], both),
        "new policy until it plays, ms": Spread.of(sync),
        "an episode on Ray beyond one in a process, ms": Spread.of(beyond),
        "episodes a second, one worker": Spread.of([len(jobs) / seconds for seconds in alone]),
    }


def conditions(found: Mapping[str, Spread]) -> list[tuple[str, bool]]:
    two, pair, _, sync, episode, _ = (spread.median for spread in found.values())
    return [
        (f"two workers play at least {TWO_AT_LEAST} times as many episodes a second ({two:.2f})", two >= TWO_AT_LEAST),
        (f"without Ray at least {PLAIN_AT_LEAST} times ({pair:.2f})", pair >= PLAIN_AT_LEAST),
        (f"a new policy plays within {SYNC_AT_MOST:g} ms ({sync:.1f})", sync <= SYNC_AT_MOST),
        (f"an episode costs at most {EPISODE_AT_MOST:g} ms more ({episode:.2f})", episode <= EPISODE_AT_MOST),
    ]


def main() -> int:
    settings, console = tyro.cli(WorkersCost, description=__doc__), Console()
    one_thread()
    before = os.getloadavg()[0]
    found = measure(settings, console)
    title = f"{settings.env}, {settings.episodes} episodes in portions of {settings.portion}; load before: {before:.1f}"
    print_table(title, ("", "median [range]"), ((name, str(spread)) for name, spread in found.items()), console)
    result = {
        "env": settings.env, "episodes": settings.episodes, "portion": settings.portion, "load_before": before,
        "processors": len(os.sched_getaffinity(0)), "figures": {name: asdict(spread) for name, spread in found.items()},
    }  # fmt: skip
    return finish(result, conditions(found), settings.out, console)


if __name__ == "__main__":
    sys.exit(main())
