"""Compares algorithms: the same tasks, the same number of environment steps, the same seeds; one report.

    turnwise compare --env wiki --algos selfac grpo --seeds 5 --env-steps 50000
    turnwise compare --config study.yaml --jobs 2

Every flag that is not one of these belongs to ``train.py`` and goes to all runs; the settings of one algorithm
(``--grpo.group 16``) go to those that have it. Several entrants of one algorithm, tuning and claims stand in a settings
file: see docs/compare.md. The same command goes on where it was stopped.
"""

import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
import runners

if __name__ == "__main__":
    runners.check_install()

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from rich.console import Console

from runners.command_line.errors import UserError, run_program
from runners.comparison.comparison_settings import ComparisonPlan, read_plan
from runners.comparison.entrants import PlannedRun
from runners.comparison.processes import ProcessJob, carry_out
from runners.comparison.report import write_report
from runners.comparison.runs import check, credit_steps, is_measured, job_of
from runners.comparison.tuning import Tried, judge
from runners.loading.base_model import Base, load_base
from runners.run_folder.folder import hold
from runners.run_folder.runs import base_of, is_run, read_run


def make_models(runs: Sequence[PlannedRun], console: Console) -> None:
    """Makes the tiny models that the runs begin from, so that no two of them make the same one at once.

    Raises UserError where a run that is there already began from other weights, as those of an earlier version do.
    """
    made: list[tuple[Any, Base | None]] = []
    for run in runs:
        key = (run.train.model, run.train.init_from, run.settings.pretrain, run.settings.env)
        known = next((i for i, (other, _) in enumerate(made) if other == key), None)
        if known is None:
            known, spec = len(made), base_of(run.settings, console, "cpu")
            there = any(is_run(other.folder) for other in runs)
            made.append((key, load_base(spec) if there else None))
        base = made[known][1]
        if base is not None and is_run(run.folder):
            try:
                read_run(run.folder).check(base)
            except UserError as error:
                raise UserError(f"{error}: name another folder with --out, or remove that run") from None


def do(jobs: Sequence[ProcessJob], plan: ComparisonPlan, title: str, console: Console) -> None:
    """Carries out the jobs. Raises UserError when one of them failed."""
    failed = carry_out(jobs, plan.compare.jobs, title, console)
    if failed:
        raise UserError(f"{_failures(failed)}; the same command goes on from here")


def _failures(failed: Mapping[str, str]) -> str:
    name, why = next(iter(failed.items()))
    return f"{name}{f' and {len(failed) - 1} more' if len(failed) > 1 else ''} failed: {why}"


def tune(plan: ComparisonPlan, console: Console) -> list[Tried]:
    """Plays the tuning and chooses. Raises UserError."""
    tried = plan.tried(console)
    runs = [run for mine in tried.values() for run in mine]
    for run in runs:
        check(run)
    plan.entrants(console)
    make_models(runs, console)
    logs = plan.compare.folder / "logs"
    do([job_of(run, logs, None) for run in runs], plan, "tuning", console)
    folders = {name: [run.folder for run in mine] for name, mine in tried.items()}
    return judge(plan.tune, folders, plan.compare.tuning_steps)


def credit(plan: ComparisonPlan, runs: Sequence[PlannedRun], console: Console) -> None:
    """Measures the credit of each seed's entrants. Raises UserError."""
    folder, size = plan.compare.folder / "credit", (plan.compare.credit_episodes, plan.compare.credit_group)
    jobs = []
    for seed in sorted({run.seed for run in runs}):
        mine = [run for run in runs if run.seed == seed]
        player = next(run for run in mine if run.entrant == plan.baseline)
        steps = partial(credit_steps, mine, player, folder / str(seed), *size)
        jobs.append(ProcessJob(f"credit, seed {seed}", plan.compare.folder / "logs" / f"credit-{seed}.log", steps))
    do(jobs, plan, "crediting", console)


def compare(plan: ComparisonPlan, console: Console) -> None:
    """Everything, in its order. Raises UserError."""
    folder, logs = plan.compare.folder, plan.compare.folder / "logs"
    tried = tune(plan, console) if plan.tune else []
    entrants = plan.entrants(console, tried)
    # Seed by seed, so that a comparison that was stopped has pairs.
    runs = [entrant.run(folder / "runs", seed) for seed in range(plan.compare.seeds) for entrant in entrants.values()]
    for run in runs:
        check(run)
    make_models(runs, console)
    jobs = [job_of(run, logs, plan.compare.measured) for run in runs]
    failed = carry_out(jobs, plan.compare.jobs, "training", console)
    left_out = {run.seed for run in runs if run.name in failed}
    if plan.compare.seeds - len(left_out) < 2:
        raise UserError(f"{_failures(failed)}; the same command goes on from here")
    runs = [run for run in runs if run.seed not in left_out]
    start = folder / "runs" / "start.test.json"
    if not is_measured(start, plan.compare.measured):
        command = plan.compare.measured.command(runs[0].folder, start, "base")
        do([ProcessJob("the start", logs / "start.log", lambda: iter([command]))], plan, "measuring", console)
    if plan.compare.credit_episodes:
        credit(plan, runs, console)
    settings = {"compare": asdict(plan.compare), "common": plan.common, "entrants": plan.own}
    page = write_report(folder, plan.baseline, runs, plan.compare.env_steps, tried, plan.claims, settings)
    console.print(f"report: {page}", soft_wrap=True, highlight=False)
    if failed:
        seeds = ", ".join(map(str, sorted(left_out)))
        raise UserError(f"{_failures(failed)}; the report leaves out seed {seeds}; the same command goes on from here")


def main() -> None:
    plan, console = read_plan(sys.argv[1:]), Console()
    plan.check(console)
    try:
        plan.compare.folder.mkdir(parents=True, exist_ok=True)
        lock = hold(plan.compare.folder)
    except OSError as error:
        raise UserError(f"cannot write {plan.compare.folder}: {error.strerror}; name another with --out") from None
    with lock:
        compare(plan, console)


if __name__ == "__main__":
    run_program(main)
