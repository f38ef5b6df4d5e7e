"""A comparison from its plan to its report: tuning, training, measuring and crediting, each in processes of its own."""

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from rich.console import Console

from runners.command_line.errors import UserError
from runners.comparison.comparison_settings import ComparisonPlan
from runners.comparison.entrants import PlannedRun
from runners.comparison.findings import gather
from runners.comparison.processes import ProcessJob, carry_out
from runners.comparison.report import write_report
from runners.comparison.runs import check, credit_folder, credit_steps, is_measured, job_of, start_file
from runners.comparison.tuning import Tried, judge
from runners.loading.base_model import Base, load_base
from runners.run_folder.runs import base_of, is_run, read_run


def make_models(runs: Sequence[PlannedRun], console: Console) -> None:
    """Makes the tiny models that the runs begin from, so that no two of them make the same one at once.

    Raises UserError where a run that is there already began from other weights, as those of an earlier version do.
    """
    made: dict[str, Base | None] = {}
    for run in runs:
        torch.set_num_threads(run.train.threads)
        key = repr((run.train.model, run.train.init_from, run.settings.pretrain, run.settings.env))
        if key not in made:
            spec = base_of(run.settings, console, "cpu")
            made[key] = load_base(spec) if any(is_run(other.folder) for other in runs) else None
        base = made[key]
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
    runs = [run for mine in tried.values() for seeds in mine for run in seeds]
    for run in runs:
        check(run)
    plan.entrants(console)
    make_models(runs, console)
    logs = plan.compare.folder / "logs"
    do([job_of(run, logs, None) for run in runs], plan, "tuning", console)
    folders = {name: [[run.folder for run in seeds] for seeds in mine] for name, mine in tried.items()}
    return judge(plan.tune, folders, plan.compare.tuning_steps)


def credit(plan: ComparisonPlan, runs: Sequence[PlannedRun], console: Console) -> None:
    """Measures the credit of each seed's entrants. Raises UserError."""
    folder, jobs = plan.compare.folder, []
    for truth in plan.compare.truths:
        for seed in sorted({run.seed for run in runs}):
            mine = [run for run in runs if run.seed == seed]
            player = next(run for run in mine if run.entrant == plan.baseline)
            place = credit_folder(folder, seed, truth["continuations"])
            name = f"{place.parent.name}, seed {seed}"
            log = folder / "logs" / f"{place.parent.name}-{seed}.log"
            jobs.append(ProcessJob(name, log, partial(credit_steps, mine, player, place, truth)))
    do(jobs, plan, "crediting", console)


def compare(plan: ComparisonPlan, console: Console) -> None:
    """Everything, in its order. Raises UserError."""
    folder, logs = plan.compare.folder, plan.compare.folder / "logs"
    tried = tune(plan, console) if plan.tune else []
    entrants = plan.entrants(console, tried)
    # Seed by seed, so that a comparison that was stopped has pairs.
    runs = [entrant.run(folder / "runs", seed) for seed in plan.compare.run_seeds for entrant in entrants.values()]
    for run in runs:
        check(run)
    make_models(runs, console)
    jobs = [job_of(run, logs, plan.compare.measured) for run in runs]
    failed = carry_out(jobs, plan.compare.jobs, "training", console)
    left_out = {run.seed for run in runs if run.name in failed}
    if plan.compare.seeds - len(left_out) < 2:
        raise UserError(f"{_failures(failed)}; the same command goes on from here")
    runs = [run for run in runs if run.seed not in left_out]
    start = start_file(folder / "runs")
    if not is_measured(start, plan.compare.measured):
        command = plan.compare.measured.command(runs[0].folder, start, "base")
        do([ProcessJob("the start", logs / "start.log", lambda: iter([command]))], plan, "measuring", console)
    if plan.compare.truths:
        credit(plan, runs, console)
    page = write_report(folder, gather(plan, runs, tried, console), runs)
    console.print(f"report: {page}", soft_wrap=True, highlight=False)
    if failed:
        seeds = ", ".join(map(str, sorted(left_out)))
        raise UserError(f"{_failures(failed)}; the report leaves out seed {seeds}; the same command goes on from here")
