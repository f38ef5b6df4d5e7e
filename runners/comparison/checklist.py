"""The fourteen items that a survey asks of reports on credit assignment, answered from what the runs recorded.

Source of the items: Zhang 2026, arXiv 2604.09459, appendix C, table 11, in our words. Invariant: an answer is read from
settings and records; what they do not tell is said to be missing.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from algorithms.base import Needs
from algorithms.credit_kind import Granularity
from runners.cloning.settings import TINY
from runners.command_line.plain import differences, without_place
from runners.comparison.comparison_settings import ComparisonPlan
from runners.comparison.curves import History, total
from runners.comparison.entrants import PlannedRun
from runners.comparison.measures import MEASURES
from runners.comparison.trajectories import Trajectories
from runners.comparison.tuning import Tried
from runners.loading.base_model import device_of
from runners.reporting.hardware import hardware
from runners.run_folder.runs import BASE

MISSING = "missing: "
BELOW = "in the table below"
UNTOLD = "not told"
Histories = Mapping[str, Mapping[int, History]]
"""By entrant and seed."""


@dataclass(frozen=True)
class Item:
    """What is asked, and what the comparison answers."""

    asked: str
    required: bool
    answer: str


@dataclass(frozen=True)
class CreditedEntrant:
    """One entrant: where its credit goes, what that takes, and what its episodes are like."""

    granularity: str
    methodology: str
    takes: str
    """What its credit needs beside a pass over what was played."""
    seconds: float
    """Of an environment step of its own, as a multiple of the baseline's; with what a control has for nothing."""
    episodes: Trajectories


@dataclass(frozen=True)
class Checklist:
    """All answers, and a row for each entrant."""

    items: Sequence[Item]
    entrants: Mapping[str, CreditedEntrant]


def checklist(
    plan: ComparisonPlan,
    runs: Sequence[PlannedRun],
    histories: Histories,
    tried: Sequence[Tried],
    played: Mapping[str, Trajectories],
) -> Checklist:
    """The list of finished ``runs``; ``played`` are their episodes by entrant."""
    firsts = {run.entrant: run for run in reversed(runs)}
    per_step = {name: _seconds_per_step(list(histories[name].values()), firsts[name]) for name in histories}
    entrants = {
        name: CreditedEntrant(
            *_kind(firsts[name]),
            ", ".join(takes(firsts[name], list(histories[name].values()))) or "nothing",
            per_step[name] / per_step[plan.baseline],
            played[name],
        )
        for name in histories
    }
    return Checklist(list(_items(plan, runs, firsts, histories, tried, entrants)), entrants)


def _items(
    plan: ComparisonPlan,
    runs: Sequence[PlannedRun],
    firsts: Mapping[str, PlannedRun],
    histories: Histories,
    tried: Sequence[Tried],
    entrants: Mapping[str, CreditedEntrant],
) -> Iterator[Item]:
    """The fourteen, in the survey's order; ``firsts`` is one run of each entrant."""
    compare = plan.compare
    yield Item("Base model: name, size, version", True, _model(runs))
    yield Item("Training data: source, size, filter", True, _data(runs, histories, entrants))
    yield Item("Granularity of credit", True, BELOW)
    yield Item("Family of methods", True, BELOW)
    whole = [name for name, one in entrants.items() if one.granularity == Granularity.EPISODE]
    lacking = f"{MISSING}no entrant credits whole episodes"
    yield Item("Baseline that credits whole episodes, same base model", True, ", ".join(whole) or lacking)
    yield Item("Equal compute, or what each took", True, _compute(plan, tried))
    alone = f"{MISSING}no two entrants have the same algorithm"
    yield Item("Ablation of the credit's parts", False, "; ".join(_ablations(firsts)) or alone)
    same = f"{compare.test_tasks} tasks of the split test of {compare.env}, the same for all; its settings are below"
    yield Item("Benchmark and split", True, same)
    metric = f"success is the environment's verdict on an episode. Area under the curve: {MEASURES['auc'].about}"
    yield Item("Metric, defined", True, f"{metric}. The others are defined above")
    seeds = sorted({run.seed for run in runs})
    spread = f"{len(seeds)} seeds, {seeds[0]} to {seeds[-1]}; 95 % intervals over seeds, and over tasks where played"
    yield Item("Variance", False, spread)
    yield Item("GPU-hours of training", True, _hours(runs, histories, tried))
    yield Item("What credit takes beside that", False, BELOW)
    yield Item("Mean length of an episode", True, BELOW)
    yield Item("Lengths: least, median, most", False, BELOW)


def takes(run: PlannedRun, histories: Sequence[History]) -> Iterator[str]:
    """What the credit of an entrant needs beside a pass over what was played."""
    needs: Needs = run.settings.algorithm.needs
    if needs.critic:
        yield "a pass for every turn and value" if needs.separate_passes else "values, in the same pass"
    if needs.token_critic:
        yield "a critic's own pass"
    if needs.judge:
        yield f"a judge of every action ({run.settings.judge.kind if run.settings.judge else UNTOLD})"
    if needs.oracle:
        yield "the environment's oracle"
    if needs.reference:
        yield "a pass of the base model"
    if needs.continuations:
        more = sum(_continued(history) for history in histories) / sum(_steps(history, run) for history in histories)
        counted = "" if needs.count_continuations else ", for nothing"
        yield f"{more:.1f} steps of continuations a step{counted}"


def _kind(run: PlannedRun) -> tuple[str, str]:
    kind = run.settings.algorithm.credit_kind
    return (UNTOLD, UNTOLD) if kind is None else (kind.granularity.value, kind.methodology.value)


def _continued(history: History) -> float:
    return sum(row.get("continuation_steps", 0.0) for row in history.rows)


def _steps(history: History, run: PlannedRun) -> float:
    """Environment steps of the episodes that it learned from."""
    counted = run.settings.algorithm.needs.count_continuations
    return history.rows[-1]["env_steps"] - (_continued(history) if counted else 0.0)


def _seconds_per_step(histories: Sequence[History], run: PlannedRun) -> float:
    seconds = sum(history.wall_seconds for history in histories)
    return seconds / sum(_steps(history, run) for history in histories)


def _model(runs: Sequence[PlannedRun]) -> str:
    found: dict[str, list[str]] = {}
    for run in runs:
        found.setdefault(_base(run.folder), []).append(run.entrant)
    if len(found) == 1:
        return next(iter(found))
    return "; ".join(f"{', '.join(dict.fromkeys(who))}: {base}" for base, who in found.items())


def _base(folder: Path) -> str:
    base: dict[str, Any] = json.loads((folder / BASE).read_text("utf-8"))
    source, size = base["source"], base.get("parameters")
    parameters = "size not recorded" if size is None else f"{size:,} parameters"
    return f"{without_place(source)}, {parameters}, fingerprint {base['fingerprint'][:16]}"


def _data(runs: Sequence[PlannedRun], histories: Histories, entrants: Mapping[str, CreditedEntrant]) -> str:
    train = runs[0].train
    tasks = [count for one in entrants.values() for count in one.episodes.tasks]
    text = f"the split train of {train.envs}; {min(tasks):,} to {max(tasks):,} different tasks a run"
    pretrain = runs[0].settings.pretrain
    if train.model == TINY and train.init_from is None and pretrain is not None:
        text += f", after {pretrain.demonstrations:,} demonstrations that made the base model"
    filters = [
        name
        for name, mine in histories.items()
        if any(row.get("resampled_tasks") for history in mine.values() for row in history.rows)
    ]
    if not filters:
        return f"{text}; no task was left out"
    return f"{text}; tasks whose episodes were all alike were replaced: {', '.join(filters)}"


def _compute(plan: ComparisonPlan, tried: Sequence[Tried]) -> str:
    text = (
        f"{plan.compare.env_steps:,} environment steps a run, up to the end of its last update; compared at equal "
        f"steps, sampled tokens and seconds ({plan.compare.clock.value})"
    )
    if not tried:
        return f"{text}. Nothing was tuned in this comparison"
    each = len(tried) // len({one.entrant for one in tried})
    steps, seeds = plan.compare.tuning_steps, plan.compare.tune_seeds
    return f"{text}. Tuning: {each} tries of {steps:,} steps and {seeds} seed{'s'[: seeds > 1]} for every entrant"


def _ablations(firsts: Mapping[str, PlannedRun]) -> Iterator[str]:
    """What tells entrants of one algorithm apart."""
    first_of: dict[str, PlannedRun] = {}
    for name, run in firsts.items():
        other = first_of.setdefault(run.train.algo, run)
        if other is not run:
            yield f"{name} is {other.entrant} with {', '.join(differences(_own(other), _own(run)))}"


def _own(run: PlannedRun) -> dict[str, Any]:
    return {key: value for key, value in run.settings.plain().items() if key not in ("out", "seed")}


def _hours(runs: Sequence[PlannedRun], histories: Histories, tried: Sequence[Tried]) -> str:
    """Hours of GPUs, or of processors where no run had a GPU, and of the tuning where there was one."""
    by_run = [(run, histories[run.entrant][run.seed]) for run in runs]
    gpus = [0 if device_of(run.train.device).type == "cpu" else run.train.ranks.size for run, _ in by_run]
    wall = [one.wall_seconds * gpu for (_, one), gpu in zip(by_run, gpus, strict=True)]
    tuning: list[float | None]
    if any(gpus):
        text = f"{_summed(wall)}, a GPU for each process that learns"
        tuning = [one.wall_seconds for one in tried]
    else:
        text = f"none; hours of the processor: {_summed([one.processor_seconds for _, one in by_run])}"
        tuning = [one.processor_seconds for one in tried]
    return f"{text}{f', of the tuning {_summed(tuning)}' if tried else ''}; {hardware()}"


def _summed(seconds: Sequence[float | None]) -> str:
    """In hours."""
    return UNTOLD if (known := total(seconds)) is None else f"{known / 3600:.2f}"
