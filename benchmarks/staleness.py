"""What a run learns, and how long its learner waits, when rollouts are played ahead or cut: against a run without.

    python benchmarks/staleness.py --seeds 0 1 2

Each arm trains on the wiki with one rollout worker and every seed; runs of a seed are compared with that at S = 0.
The condition is that, by default, the mean of the final sampled success is within 0.03 of that at S = 0; other ways to
learn from old episodes are shown. Runs whose folder is there already are read, not repeated.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tyro
from rich.console import Console
from rich.table import Table

from benchmarks.timing import finish
from runners.statistics.intervals import mean

ROOT = Path(__file__).resolve().parent.parent
CLOSE = 0.03
"""How far the final success may lie from that at S = 0, over all seeds."""
BASE = "S = 0"
ARMS: Mapping[str, Sequence[str]] = {
    BASE: (),
    "S = 1": ("--staleness", "1"),
    "S = 2": ("--staleness", "2"),
    "S = 1, partial rollouts": ("--staleness", "1", "--overprovision", "32", "--partial-rollouts"),
    "S = 1, from the learner": ("--staleness", "1", "--old-logp", "trainer"),
    "S = 2, from the learner": ("--staleness", "2", "--old-logp", "trainer"),
    "S = 2, no correction": ("--staleness", "2", "--old-logp", "trainer", "--correction", "none"),
}
SHOWN = ("from the learner", "no correction")
"""Parts of the names of the arms that have no condition."""


@dataclass(frozen=True)
class Staleness:
    """Train with rollouts that are played ahead, and without."""

    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of the runs."""
    arms: tuple[str, ...] = tuple(ARMS)
    """What to compare, by name."""
    algo: str = "selfac"
    """Algorithm to train with."""
    updates: int = 60
    """Updates of a run."""
    runs: Path = Path("runs/staleness")
    """Folder of the run folders, ARM-SEED."""
    out: Path = Path("benchmarks/results/staleness.json")
    """File for the result."""


@dataclass(frozen=True)
class Trained:
    """One run."""

    sampled: float
    """Final success on the test tasks."""
    greedy: float
    waited: float
    """Share of the time of all updates in which the learner waited for episodes."""
    lag: float
    """Age of the oldest policy that an update learned from, mean over updates."""
    kl: float
    """Largest divergence from the policy that the run began with, in nats a token."""
    fall: float
    """Most by which an update's success lay below that of an earlier one."""
    seconds: float


def folder_of(settings: Staleness, arm: str, seed: int) -> Path:
    return settings.runs / f"{arm.replace(' = ', '').replace(', ', '-').replace(' ', '-')}-{seed}"


def trained(settings: Staleness, arm: str, seed: int) -> Trained:
    """A run, trained first if it is not there."""
    folder = folder_of(settings, arm, seed)
    if not (folder / "summary.json").is_file():
        command = [sys.executable, str(ROOT / "runners" / "train.py"), "--env", "wiki", "--algo", settings.algo]
        command += ["--workers", "1", "--updates", str(settings.updates), "--seed", str(seed), "--out", str(folder)]
        subprocess.run([*command, *ARMS[arm]], check=True)
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    rows = [
        row for row in map(json.loads, (folder / "metrics.jsonl").open(encoding="utf-8")) if row["kind"] == "update"
    ]
    learning = sum(row["seconds_forward"] + row["seconds_update"] for row in rows)
    waiting = sum(row["seconds_rollout"] for row in rows)
    sampled, greedy = (summary["final"][mode]["mean"] for mode in ("sampled", "greedy"))
    lag = mean([row.get("lag", 0.0) for row in rows])
    success = [row["success"] for row in rows]
    fall = max(best - one for best, one in zip(accumulate(success, max), success, strict=True))
    waited, kl = waiting / (waiting + learning), max(row.get("kl", 0.0) for row in rows)
    return Trained(sampled, greedy, waited, lag, kl, fall, summary["seconds"])


def differences(runs: Mapping[str, Sequence[Trained]]) -> dict[str, float]:
    """Mean over the seeds of the final sampled success minus that at S = 0."""
    base = runs[BASE]
    return {
        arm: mean([one.sampled - other.sampled for one, other in zip(of_arm, base, strict=True)])
        for arm, of_arm in runs.items()
        if arm != BASE
    }


def conditions(off: Mapping[str, float]) -> Iterator[tuple[str, bool]]:
    """What must hold, each with whether it does."""
    for arm, difference in off.items():
        if not any(name in arm for name in SHOWN):
            yield f"{arm}: {difference:+.3f} is within {CLOSE} of {BASE}", abs(difference) <= CLOSE


def shown(runs: Mapping[str, Sequence[Trained]], off: Mapping[str, float], console: Console) -> None:
    table = Table(title="wiki: final success on test tasks by seed, and what the learner waited")
    for name in ("", "sampled", "greedy", "mean against S = 0", "largest KL", "fall", "waited", "lag", "seconds"):
        table.add_column(name)
    for arm, of_arm in runs.items():
        columns = [" ".join(f"{getattr(one, name):.3f}" for one in of_arm) for name in ("sampled", "greedy")]
        far = [f"{max(getattr(one, name) for one in of_arm):.3f}" for name in ("kl", "fall")]
        against = f"{off[arm]:+.3f}" if arm in off else ""
        waited, lag, seconds = (mean([getattr(one, name) for one in of_arm]) for name in ("waited", "lag", "seconds"))
        table.add_row(arm, *columns, against, *far, f"{waited:.2f}", f"{lag:.2f}", f"{seconds:.0f}")
    console.print(table)


def main() -> None:
    settings = tyro.cli(Staleness)
    if BASE not in settings.arms or (unknown := set(settings.arms) - set(ARMS)):
        sys.exit(f"--arms takes {BASE!r} and some of {', '.join(map(repr, ARMS))}, not {sorted(unknown)}")
    console = Console()
    runs = {arm: [trained(settings, arm, seed) for seed in settings.seeds] for arm in settings.arms}
    off = differences(runs)
    shown(runs, off, console)
    result = {
        "settings": {"seeds": settings.seeds, "algo": settings.algo, "updates": settings.updates},
        "runs": {arm: [asdict(one) for one in of_arm] for arm, of_arm in runs.items()},
        "against_S_0": off,
    }
    sys.exit(finish(result, conditions(off), settings.out, console))


if __name__ == "__main__":
    main()
