"""How long the learner waits for episodes that are played ahead, where a rollout takes as long as an update.

    python benchmarks/waiting.py        # three minutes on two idle cores

The same run with one rollout worker, without episodes played ahead and with those of one update. So many passes over an
update's episodes are made that both take as long, and the learning rate is so low that this stays so. Exits with 1
where the two are not alike, where the learner waits too long with S = 1, or where it would not without.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tyro
from rich.console import Console

from benchmarks.timing import finish, print_table
from runners.statistics.intervals import mean

ROOT = Path(__file__).resolve().parent.parent
WAITS_AT_MOST = 0.10
"""Share of the time in which the learner may wait with S = 1."""
ALIKE = (0.8, 1.25)
"""Between which a rollout's time, over an update's, counts as 1."""
WARM = 3
"""Updates at the beginning that are not counted."""


@dataclass(frozen=True)
class Waiting:
    """Measure how long the learner waits."""

    env: str = "wiki"
    """Environment to train on, with its tiny model."""
    algo: str = "grpo"
    """Algorithm to train with."""
    epochs: int = 5
    """Passes over an update's episodes."""
    updates: int = 30
    """Updates of a run."""
    out: Path = Path("benchmarks/results/waiting.json")
    """File for the result."""


@dataclass(frozen=True)
class Update:
    """Seconds of one update, in the mean of a run."""

    rollout: float
    """In which the learner has nothing to do: it waits for episodes."""
    learning: float
    other: float
    """Records and the checkpoint."""

    @property
    def waits(self) -> float:
        """Share of the time."""
        return self.rollout / (self.rollout + self.learning + self.other)


def trained(settings: Waiting, staleness: int) -> Update:
    """A run in a folder of its own."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, str(ROOT / "runners" / "train.py"), "--env", settings.env, "--algo", settings.algo]
        command += ["--epochs", str(settings.epochs), "--updates", str(settings.updates), "--lr", "1e-5"]
        command += ["--workers", "1", "--staleness", str(staleness), "--eval-every", "0", "--test-tasks", "8"]
        subprocess.run([*command, "--out", f"{folder}/run"], check=True, stdout=subprocess.DEVNULL)
        lines = Path(folder, "run", "metrics.jsonl").read_text("utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["kind"] == "update"][WARM:]
    return Update(
        mean([row["seconds_rollout"] for row in rows]),
        mean([row["seconds_forward"] + row["seconds_update"] for row in rows]),
        mean([row["seconds_other"] for row in rows]),
    )


def conditions(waits: Update, ahead: Update) -> Iterator[tuple[str, bool]]:
    """What must hold, each with whether it does, of the run that waits and of the one that plays ahead."""
    alike = waits.rollout / (waits.learning + waits.other)
    yield f"a rollout takes as long as an update ({alike:.2f} times)", ALIKE[0] <= alike <= ALIKE[1]
    yield f"the learner waits less than {WAITS_AT_MOST:g} with S = 1 ({ahead.waits:.3f})", ahead.waits < WAITS_AT_MOST
    yield f"and more without ({waits.waits:.3f})", waits.waits > WAITS_AT_MOST


def main() -> int:
    settings, console = tyro.cli(Waiting, description=__doc__), Console()
    before = os.getloadavg()[0]
    waits, ahead = (trained(settings, staleness) for staleness in (0, 1))
    title = f"{settings.env}, {settings.algo}, {settings.epochs} epochs; load before: {before:.1f}"
    rows = [
        (name, f"{one.rollout:.2f}", f"{one.learning:.2f}", f"{one.other:.2f}", f"{one.waits:.3f}")
        for name, one in (("S = 0", waits), ("S = 1", ahead))
    ]
    print_table(title, ("", "waits for episodes, s", "learns, s", "records, s", "share that waits"), rows, console)
    result = {
        "env": settings.env, "algo": settings.algo, "epochs": settings.epochs, "load_before": before,
        "processors": len(os.sched_getaffinity(0)), "S = 0": asdict(waits), "S = 1": asdict(ahead),
    }  # fmt: skip
    return finish(result, conditions(waits, ahead), settings.out, console)


if __name__ == "__main__":
    sys.exit(main())
