"""One policy for the wiki and for mathematics, against a policy for each alone, at the same episodes of each kind.

    python benchmarks/together.py --seeds 0 1 2

All runs of a seed start from the same weights: the tiny model of both environments, by a run of 0 updates. The policies
are compared on the same held-out tasks, so differences are paired; intervals are 95 %, over tasks. The condition is
that the mean difference over the seeds is at least -0.05 in each environment, sampled and greedy. Runs whose folder is
there already are read, not repeated.
"""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tyro
from rich.console import Console

from benchmarks.held_out import TrainedPolicy
from benchmarks.timing import finish, one_thread, print_table
from runners.evaluation.measure import PlayedTasks, paired_gain
from runners.statistics.intervals import Interval, mean

ROOT = Path(__file__).resolve().parent.parent
ENVS = ("wiki", "math")
EPISODES = 128
"""Of each environment in an update."""
CLOSE = 0.05
"""How far the policy of both may lie below that of one alone."""


@dataclass(frozen=True)
class Together:
    """Train one policy for two environments, and one for each."""

    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of the runs."""
    algo: str = "grpo"
    """Algorithm to train with."""
    updates: int = 24
    """Updates of a run."""
    tasks: int = 500
    """Held-out tasks of each environment."""
    samples: int = 4
    """Episodes of a task with sampling; greedily it is played once."""
    runs: Path = Path("runs/together")
    """Folder of the run folders, ENVIRONMENTS-SEED."""
    out: Path = Path("benchmarks/results/together.json")
    """File for the result."""


def train(settings: Together, name: str, envs: Sequence[str], seed: int, *flags: str) -> Path:
    """The folder of a run, trained first if it is not there."""
    folder = settings.runs / f"{name}-{seed}"
    if not (folder / "summary.json").is_file():
        command = [sys.executable, str(ROOT / "runners" / "train.py"), "--env", *envs, "--algo", settings.algo]
        command += ["--seed", str(seed), "--out", str(folder), "--test-tasks", "0", "--eval-every", "0", *flags]
        subprocess.run(command, check=True)
    return folder


def trained(settings: Together, envs: Sequence[str], seed: int) -> Path:
    start = train(settings, "start", ENVS, seed, "--updates", "0")
    flags = ["--updates", str(settings.updates), "--episodes", str(EPISODES * len(envs)), "--init-from", str(start)]
    return train(settings, "-".join(envs), envs, seed, *flags)


def held_out(settings: Together, folder: Path, console: Console) -> dict[tuple[str, str], PlayedTasks]:
    """What the policy of a run did, by environment and decoding."""
    policy = TrainedPolicy(folder, console)
    return {
        (name, how): policy.play(name, config, settings.tasks, greedy=how == "greedy", samples=samples)
        for name, config in policy.run.settings.env.items()
        for how, samples in (("sampled", settings.samples), ("greedy", 1))
    }


@dataclass(frozen=True)
class Compared:
    """Success of both policies in one environment, one seed and one decoding."""

    env: str
    how: str
    seed: int
    alone: Interval
    both: Interval
    difference: Interval
    """Both minus alone, paired over tasks."""


def compared(settings: Together, seed: int, console: Console) -> Iterator[Compared]:
    both = held_out(settings, trained(settings, ENVS, seed), console)
    for env in ENVS:
        for (_, how), alone in held_out(settings, trained(settings, [env], seed), console).items():
            difference = paired_gain(alone, both[env, how])
            assert difference is not None
            yield Compared(env, how, seed, alone.success(), both[env, how].success(), difference)


def conditions(rows: Sequence[Compared]) -> Iterator[tuple[str, bool]]:
    """What must hold, each with whether it does."""
    cells: Mapping[tuple[str, str], list[float]] = {(row.env, row.how): [] for row in rows}
    for row in rows:
        cells[row.env, row.how].append(row.difference.mean)
    for (env, how), values in cells.items():
        yield f"{env}, {how}: {mean(values):+.3f} is at least {-CLOSE}", mean(values) >= -CLOSE


def main() -> int:
    settings, console = tyro.cli(Together, description=__doc__), Console()
    one_thread()
    rows = [row for seed in settings.seeds for row in compared(settings, seed, console)]
    cells = ((f"{r.env}, {r.how}, seed {r.seed}", str(r.alone), str(r.both), str(r.difference)) for r in rows)
    print_table("success on held-out tasks", ("", "alone", "both", "both - alone"), cells, console)
    result = {
        "settings": {"algo": settings.algo, "updates": settings.updates, "episodes": EPISODES},
        "tasks": settings.tasks, "samples": settings.samples, "runs": [asdict(row) for row in rows],
    }  # fmt: skip
    return finish(result, conditions(rows), settings.out, console)


if __name__ == "__main__":
    sys.exit(main())
