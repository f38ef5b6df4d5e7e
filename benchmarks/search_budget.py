"""The worth of a critic at inference: success against sampled tokens, per scorer, on the same tasks.

    python benchmarks/search_budget.py --run RUN --name countdown
    python benchmarks/search_budget.py --run RUN --name countdown --budgets 2 4 8 --tasks 300

RUN is a run folder of `train.py` whose algorithm has a critic; its policy should succeed in 0.3 to 0.7 of the tasks. A
budget is counted in episodes: best-of-n plays that many, and a search may sample as many tokens as they take on
validation tasks. A search that is told when a puzzle is solved ends there; best-of-n sees no verdict. The weight of the
log-probability in a mixed score, and the threshold below which an episode is given up, are chosen on validation tasks.

Each cell is stored as it ends, so a stopped study goes on where it was. Writes search-NAME.json, .md, .csv and .png,
and exits with 1 where a condition does not hold.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import torch
import tyro
from rich.console import Console

from agent_envs import registry
from agent_envs.core import Task
from agents.rollout.search.settings import SEARCHERS, ScorerKind, Scoring, Strategy, ToTSettings
from benchmarks import timing
from benchmarks.cells import Cells
from runners.command_line.errors import UserError, run_program
from runners.command_line.plain import plain
from runners.evaluation.calibration import calibration
from runners.evaluation.policies import load_policies
from runners.evaluation.tasks import has_oracle, pick_tasks
from runners.inference import best_of_n, program, report
from runners.inference.episode_scores import Scores
from runners.inference.program import Study, StudyResult
from runners.inference.settings import Agent, EarlyStop, Likelihood
from runners.inference.success_by_tokens import Point, Row, rows_of
from runners.run_folder import checkpoint
from runners.run_folder.runs import SavedRun, locate
from runners.statistics.intervals import mean
from runners.statistics.turns import Passed, turns_of

K = ScorerKind
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class SearchBudget:
    """Success against sampled tokens, for every scorer."""

    run: Path
    """Run folder of train.py, or one of its checkpoints; the environment is that of the run."""
    name: str
    """What the files of the result are called by."""
    budgets: tuple[int, ...] = (2, 4, 8)
    """In episodes of a task, from 2 on."""
    tasks: int = 300
    """Test tasks, the same for all."""
    valid_tasks: int = 150
    """Validation tasks on which weights and thresholds are chosen."""
    samples: int = 4
    """Episodes of each of them."""
    branch: int = 3
    """Actions that a search samples in a state."""
    beam: int = 1
    """States that a search expands before it looks at their children."""
    search: Strategy = Strategy.BEST_FIRST
    """Which states are expanded."""
    max_loss: float = 0.01
    """Share of the validation episodes that giving up early may lose, at the upper end of the interval."""
    seed: int = 0
    """Seed of the sampling."""
    slots: int = 128
    """Episodes played at once."""
    cells: Path = Path("runs/search")
    """Folder in which the cells of NAME are kept."""
    out: Path = ROOT / "benchmarks" / "results"
    """Folder of the result."""


CHOOSERS = (K.RANDOM, K.MAJORITY, K.LOGPROB, K.VALUE, K.VALUE_LOGPROB, K.END_VALUE, K.END_VALUE_LOGPROB, K.ORACLE)
SHORTEST = "fewest turns"
STOPPERS = (K.VALUE, K.LOGPROB, K.VALUE_LOGPROB, K.RANDOM)


@dataclass(frozen=True)
class Played:
    """The episodes of some tasks, and what was read for the values of one."""

    lines: list[list[Scores]]
    value_tokens: float

    @classmethod
    def of(cls, cell: Mapping[str, Any]) -> Played:
        return cls([[_line(one) for one in mine] for mine in cell["lines"]], cell["value_tokens"])


def _line(cell: Mapping[str, Any]) -> Scores:
    return Scores(**_tuples(cell))


def _tuples(cell: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(x) if isinstance(x, list) else x for name, x in cell.items()}


def played(asked: Study, tasks: Sequence[Task], samples: int) -> dict[str, Any]:
    """A cell: every task ``samples`` times. Answers are kept as text, of which equal ones are the same."""
    before = asked.read
    lines = asked.lines(tasks, samples)
    told = [[replace(line, answer=repr(line.answer)) for line in mine] for mine in lines]
    return {"lines": plain(told), "value_tokens": (asked.read - before) / max(1, sum(map(len, lines)))}


def measure(settings: SearchBudget, asked: Study, cells: Cells) -> dict[str, Any]:
    """Everything, from cells that are there and others that are measured first."""
    tasks = pick_tasks(asked.env, "test", settings.tasks)
    chosen = pick_tasks(asked.env, "valid", settings.valid_tasks)
    valid = Played.of(cells.get("episodes-valid", lambda: played(asked, chosen, settings.samples)))
    most = max(settings.budgets)
    test = Played.of(cells.get(f"episodes-test-{most}", lambda: played(asked, tasks, most)))
    result = StudyResult([program.single(test.lines)])
    for kind in asked.kinds:
        scoring = Scoring(kind)
        if kind.mixed:
            scoring = best_of_n.choose_weight(valid.lines, scoring, settings.samples)
            result.weights[kind] = scoring.weight
        result.points += [best_of_n.point(test.lines, scoring, n, test.value_tokens) for n in settings.budgets]
    result.points += [shortest(test.lines, n) for n in settings.budgets]
    whole = mean([float(sum(line.tokens)) for mine in valid.lines for line in mine])
    oracle = has_oracle(asked.env, "test")
    # Budget by budget: what a stopped study has is whole as far as it goes.
    for n, kind in product(sorted(settings.budgets), (k for k in SEARCHERS if oracle or k != K.ORACLE)):
        scoring = Scoring(kind, weight=result.weights.get(kind, 1.0), discount=asked.values.discount)
        tot = ToTSettings(settings.branch, settings.search, settings.beam, tokens=round(n * whole))
        ask = partial(program.searched, asked, tasks, tot, scoring, n)
        result.points.append(_point(cells.get(f"tot-{n}-{kind}", ask)))
        asked.console.print(f"{kind}, {n}: {mean(result.points[-1].success):.3f}", highlight=False)
    first = [mine[: settings.samples] for mine in test.lines]
    stopping = EarlyStop(settings.max_loss)
    result.stops = [program.stopping(first, valid.lines, kind, stopping, Likelihood())[1] for kind in STOPPERS]
    return {"found": result, "critic": critic(test.lines, tasks), "tokens_of_an_episode": whole}


def shortest(tasks: Sequence[Sequence[Scores]], n: int) -> Point:
    """A control: of n episodes the one with the fewest turns, of equal ones the first. Where failures are long it needs
    no critic to be told from a success."""
    success, tokens = [], []
    for lines in tasks:
        mine = best_of_n.groups(lines, n)
        success.append(mean([min(group, key=lambda line: len(line.tokens)).success for group in mine]))
        tokens.append(mean([float(sum(sum(line.tokens) for line in group)) for group in mine]))
    return Point(Agent.BEST_OF_N, SHORTEST, n, tuple(success), tuple(tokens))


def _point(cell: Mapping[str, Any]) -> Point:
    """A cell as it was stored; a task that was never played to an end is stored as NaN."""
    return Point(**_tuples(cell))


def critic(lines: Sequence[Sequence[Scores]], tasks: Sequence[Task]) -> dict[str, Any]:
    """How well the critic predicts success, on the same episodes (`runners.evaluation.calibration`)."""
    told = [
        Passed(
            task.id,
            (task.level, task.language),
            line.success > 0,
            line.values,
            line.oracle or [None] * len(line.values),
            len(line.tokens),
        )
        for task, mine in zip(tasks, lines, strict=True)
        for line in mine
        if line.values is not None
    ]
    return calibration(turns_of(told)) if told else {}


def conditions(rows: Sequence[Row], stops: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, bool]]:
    """What must hold, each with whether it does."""
    alone = next(row for row in rows if row.scorer == "none")
    yield f"one episode succeeds in {alone.success}: 0.3 to 0.7", 0.3 <= alone.success.mean <= 0.7
    yield f"{alone.tasks} tasks: at least 300", alone.tasks >= 300
    for better, base in ((K.VALUE, K.RANDOM), (K.VALUE_LOGPROB, K.LOGPROB)):
        for row in (r for r in rows if r.scorer == better):
            less = next(r for r in rows if (r.agent, r.budget, r.scorer) == (row.agent, row.budget, base))
            where = f"{row.agent}, {row.budget} episodes' tokens: {better} {row.success}, {base} {less.success}"
            yield f"{where}: paired difference {row.over[base]} above 0", row.over[base].low > 0
            yield f"{where}: intervals apart", row.success.low > less.success.high
    for stop in (s for s in stops if s["scorer"] in (K.VALUE, K.VALUE_LOGPROB)):
        figures = stop["figures"]
        saved, lost = figures["failing_saved"], figures["success_lost"]
        yield f"early stop by {stop['scorer']}: saves {saved} of failing tokens: at least 0.25", saved.mean >= 0.25
        yield f"early stop by {stop['scorer']}: loses {lost} of the episodes: at most 0.01", lost.mean <= 0.01


@contextmanager
def opened(settings: SearchBudget, console: Console) -> Iterator[tuple[Study, dict[str, Any]]]:
    """What is measured, and what all figures depend on. Raises UserError."""
    run, chosen = locate(settings.run, console)
    env = registry.make(*run.settings.only_env("search_budget"))
    play = run.settings.play(slots=settings.slots, exact=True, oracle=has_oracle(env, "test"))
    policies = load_policies(str(chosen), play, console)
    if policies.critic is None or policies.algorithm is None:
        raise UserError(f"{settings.run} has no critic: name a run of an algorithm with one")
    verifies = policies.algorithm.values.verifies
    kinds = tuple(k for k in CHOOSERS if verifies or not k.startswith("end_value"))
    with policies.playing() as controller:
        console.print(f"model: {controller.workers.start()}", soft_wrap=True, highlight=False)
        controller.load(0, policies.adapters["trained"])
        asked = Study(
            Agent.BEST_OF_N, kinds, {}, run.train.sampling(), settings.samples, settings.seed, controller, policies,
            env, console,
        )  # fmt: skip
        yield asked, identity(settings, run, chosen)


def identity(settings: SearchBudget, run: SavedRun, chosen: Path) -> dict[str, Any]:
    told = {k: v for k, v in plain(settings).items() if k not in ("run", "name", "budgets", "max_loss", "cells", "out")}
    sums = json.loads((chosen / checkpoint.MANIFEST).read_text("utf-8"))
    return {**told, "checkpoint": sums, "env": run.settings.only_env("search_budget")[1], "base": run.train.model}


def main() -> None:
    settings = tyro.cli(SearchBudget)
    if len(set(settings.budgets)) < len(settings.budgets) or min(settings.budgets) < 2:
        raise UserError(f"--budgets must be different numbers from 2 on, not {settings.budgets}")
    torch.set_num_threads(1)
    console = Console()
    with opened(settings, console) as (asked, depends):
        told = measure(settings, asked, Cells(settings.cells / settings.name, depends))
    found: StudyResult = told["found"]
    report.show(found, console)
    out = settings.out / f"search-{settings.name}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    report.write(found, settings.name, out)
    rows = rows_of(found.points)
    result = {"settings": depends, **report.as_json(found), **{k: v for k, v in told.items() if k != "found"}}
    sys.exit(timing.finish(plain(result), conditions(rows, found.stops), out, console))


if __name__ == "__main__":
    run_program(main)
