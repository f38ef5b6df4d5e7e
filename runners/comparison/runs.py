"""The programs of a comparison's runs: training, then playing test tasks with what was learned.

Invariant: what is finished is not done again, what was interrupted goes on, and a folder whose settings are others is
never touched.
"""

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runners.command_line.errors import UserError
from runners.command_line.plain import plain
from runners.comparison.entrants import PlannedRun
from runners.comparison.processes import ProcessJob
from runners.run_folder import checkpoint
from runners.run_folder.runs import is_run, read_run

PROGRAMS = Path(__file__).resolve().parent.parent
SUMMARY = "summary.json"


@dataclass(frozen=True)
class Measured:
    """How the policy that a run ends with is measured."""

    test_tasks: int
    """Test tasks that are played once sampled and once greedily."""
    pass_samples: int
    """Episodes of each of ``pass_tasks`` tasks, for pass@k; 0 for none."""
    pass_tasks: int

    def command(self, run: Path, out: Path, policy: str) -> list[str]:
        values = {"test-tasks": self.test_tasks, "pass-samples": self.pass_samples, "pass-tasks": self.pass_tasks}
        flags = [word for name, value in values.items() for word in (f"--{name}", str(value))]
        program = str(PROGRAMS / "comparison" / "play_test_tasks.py")
        return [sys.executable, program, "--run", str(run), "--policy", policy, "--out", str(out), *flags]


def check(run: PlannedRun) -> None:
    """Raises UserError when the run's folder holds a run with other settings."""
    if not is_run(run.folder):
        return
    there = read_run(run.folder)
    known = there.settings.by_prefix()
    for old, new, prefix in (
        (there.train, replace(run.train, out=there.train.out), ""),
        *((known.get(name), part, f"{name}.") for name, part in run.settings.by_prefix().items()),
    ):
        if old != new:
            was, now = plain(old) or {}, plain(new)
            key = next((key for key in now if was.get(key) != now[key]), "settings")
            raise UserError(
                f"{run.folder} was run with other settings ({prefix}{key} was {was.get(key)}, is {now.get(key)}): name "
                "another folder with --out, or remove that run"
            )


def train_command(run: PlannedRun) -> list[str] | None:
    """What begins the run or goes on with it; None when it has ended. Raises UserError when it was run otherwise."""
    check(run)
    program = [sys.executable, str(PROGRAMS / "train.py")]
    if (run.folder / SUMMARY).exists():
        return None
    if is_run(run.folder) and checkpoint.checkpoints(run.folder / "checkpoints"):
        return [*program, "--resume", str(run.folder)]
    shutil.rmtree(run.folder, ignore_errors=True)  # nothing was learned in it yet
    run.folder.mkdir(parents=True)
    settings = run.folder.with_name(f"{run.name}.yaml")
    settings.write_text(run.settings.written(), "utf-8")
    return [*program, "--config", str(settings)]


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
    runs: Sequence[PlannedRun], player: PlannedRun, out: Path, episodes: int, group: int
) -> Iterator[Sequence[str]]:
    """The command that measures the runs' credit on episodes of ``player``, unless that is done."""
    flags = {"episodes": episodes, "group": group, "seed": player.seed}
    folders = [str(run.folder) for run in runs]
    try:
        settings = json.loads((out / "credit.json").read_text("utf-8"))["settings"]
        done = all(settings[key] == value for key, value in flags.items()) and settings["runs"] == folders
    except (OSError, ValueError, KeyError):
        done = False
    if not done:
        words = [word for key, value in flags.items() for word in (f"--{key}", str(value))]
        words += ["--threads", str(player.train.threads), "--device", player.train.device]
        program = [sys.executable, str(PROGRAMS / "credit.py"), "--model", str(player.folder)]
        yield [*program, "--runs", *folders, *words, "--out", str(out)]


def is_measured(file: Path, measured: Measured) -> bool:
    """Whether the file holds a result of these measurements."""
    try:
        return bool(json.loads(file.read_text("utf-8"))["measured"] == plain(measured))
    except (OSError, ValueError, KeyError):
        return False
