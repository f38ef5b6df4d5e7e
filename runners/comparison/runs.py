"""The programs of a comparison's runs: training, then playing test tasks with what was learned.

Invariant: what is finished is not done again, what was interrupted goes on, and a folder whose settings are others is
never touched.
"""

import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from runners.command_line.errors import UserError
from runners.command_line.plain import differences, plain
from runners.comparison.entrants import PlannedRun
from runners.comparison.processes import ProcessJob
from runners.run_folder import checkpoint
from runners.run_folder.runs import is_run, read_run, resolved

PROGRAMS = Path(__file__).resolve().parent.parent
SUMMARY, CREDIT = "summary.json", "credit.json"


@dataclass(frozen=True)
class Measured:
    """How the policy that a run ends with is measured."""

    test_tasks: int = 500
    """Test tasks, played once sampled and once greedily."""
    pass_samples: int = 0
    """Episodes of each of ``pass_tasks`` tasks, for pass@k; 0 for none."""
    pass_tasks: int = 100
    """Test tasks for pass@k."""

    def command(self, run: Path, out: Path, policy: str) -> list[str]:
        asked = {f"measured.{name}": value for name, value in vars(self).items()}
        return _command("comparison/play_test_tasks.py", run=run, policy=policy, out=out, **asked)


def _command(program: str, **flags: object) -> list[str]:
    words = [word for name, value in flags.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return [sys.executable, str(PROGRAMS / program), *words]


def check(run: PlannedRun) -> None:
    """Raises UserError when the run's folder holds a run with other settings."""
    if not is_run(run.folder):
        return
    # As a run writes them: with the very checkpoints of the runs that they name.
    new = resolved(run.settings, Console(quiet=True)).plain()
    old = read_run(run.folder).settings.plain()
    if changed := next(differences(old, {**new, "out": old["out"]}), None):
        raise UserError(
            f"{run.folder} was run with other settings ({changed}): name another folder with --out, or remove that run"
        )


def train_command(run: PlannedRun) -> list[str] | None:
    """What begins the run or goes on with it; None when it has ended. Raises UserError when it was run otherwise."""
    check(run)
    if (run.folder / SUMMARY).exists():
        return None
    if is_run(run.folder) and checkpoint.checkpoints(run.folder / "checkpoints"):
        return _command("train.py", resume=run.folder)
    shutil.rmtree(run.folder, ignore_errors=True)  # nothing was learned in it yet
    # What was measured of an earlier run in this place is not of this one.
    runs = run.folder.parent
    credits = [credit_folder(runs.parent, run.seed, continuations) / CREDIT for continuations in (0, 1)]
    for file in (result_file(run), start_file(runs), *credits):
        file.unlink(missing_ok=True)
    run.folder.mkdir(parents=True)
    settings = run.folder.with_name(f"{run.name}.yaml")
    settings.write_text(run.settings.written(), "utf-8")
    return _command("train.py", config=settings)


def progress_of(folder: Path, env_steps: int) -> float:
    """Share of the run's environment steps that are played."""
    try:
        with (folder / "metrics.jsonl").open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - 20_000))
            lines = file.read().splitlines()
    except OSError:
        return 0.0
    for line in reversed(lines):
        try:
            return min(1.0, float(json.loads(line)["env_steps"]) / env_steps)
        except (ValueError, KeyError):
            continue
    return 0.0


def result_file(run: PlannedRun) -> Path:
    """Where it is written what the run's last policy did on test tasks."""
    return run.folder.with_name(f"{run.name}.test.json")


def start_file(runs: Path) -> Path:
    """Where it is written what the policy did that all ``runs`` began from."""
    return runs / "start.test.json"


def credit_folder(comparison: Path, seed: int, continuations: int = 0) -> Path:
    """Where the credit of a seed's runs is measured, against the oracle or the policy's own values."""
    return comparison / ("credit-played" if continuations else "credit") / str(seed)


def job_of(run: PlannedRun, logs: Path, measured: Measured | None) -> ProcessJob:
    """Everything about one run."""

    def steps() -> Iterator[Sequence[str]]:
        if (command := train_command(run)) is not None:
            yield command
        if measured is not None and not is_measured(result_file(run), measured):
            yield measured.command(run.folder, result_file(run), "trained")

    return ProcessJob(
        run.name, logs / f"{run.name}.log", steps, lambda: 0.98 * progress_of(run.folder, run.train.env_steps)
    )


def credit_steps(
    runs: Sequence[PlannedRun], player: PlannedRun, out: Path, flags: Mapping[str, int]
) -> Iterator[Sequence[str]]:
    """The command that measures the runs' credit on episodes of ``player``, unless that is done."""
    flags = {**flags, "seed": player.seed}
    folders = [str(run.folder) for run in runs]
    settings = _entry(out / CREDIT, "settings") or {}
    if {**settings, **flags, "runs": folders} != settings:
        played = {"model": player.folder, "threads": player.train.threads, "device": player.train.device}
        yield [*_command("credit.py", **flags, **played, out=out), "--runs", *folders]


def is_measured(file: Path, measured: Measured) -> bool:
    """Whether the file holds a result of these measurements."""
    return bool(_entry(file, "measured") == plain(measured))


def _entry(file: Path, key: str) -> Any:
    """An entry of a JSON file; None where there is no such thing."""
    try:
        return json.loads(file.read_text("utf-8"))[key]
    except (OSError, ValueError, KeyError):
        return None
