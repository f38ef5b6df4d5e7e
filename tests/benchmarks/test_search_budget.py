"""The study of search at inference on a run of some seconds: it goes on from its cells, and its conditions can fail."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from inference_cases import line
from rich.console import Console
from run_cases import training

from agents.rollout.search.settings import ScorerKind
from benchmarks import search_budget
from benchmarks.cells import Cells
from benchmarks.search_budget import SearchBudget, conditions, measure, opened, shortest
from runners.command_line.errors import UserError
from runners.inference.settings import Agent
from runners.inference.success_by_tokens import Point, rows_of
from runners.statistics.intervals import Interval

pytestmark = pytest.mark.usefixtures("own_cache")
K = ScorerKind


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, own_cache: None) -> SearchBudget:
    place = tmp_path_factory.mktemp("runs")
    with training(place / "critic", "--updates", "1", "--eval-every", "0", "--test-tasks", "0") as run:
        run.run()
    return SearchBudget(place / "critic", "small", (2, 3), 6, 6, 2, 2, cells=place / "cells", out=place)


def studied(settings: SearchBudget) -> tuple[dict[str, Any], Cells]:
    with opened(settings, Console(quiet=True)) as (asked, depends):
        cells = Cells(settings.cells / settings.name, depends)
        return measure(settings, asked, cells), cells


@pytest.mark.runs
def test_a_study_goes_on_from_its_cells(settings: SearchBudget) -> None:
    told, cells = studied(settings)
    points = told["found"].points
    assert {(p.agent, p.scorer) for p in points if p.budget == 3} == {
        *((Agent.BEST_OF_N, k) for k in (*search_budget.CHOOSERS, search_budget.SHORTEST)),
        *((Agent.TOT, k) for k in search_budget.SEARCHERS),
    }
    assert told["critic"]["counts"]["episodes"] and [s["scorer"] for s in told["found"].stops] == [
        *search_budget.STOPPERS
    ]
    files = {path.name for path in cells.folder.iterdir()}
    assert len(files) == 3 + 2 * len(search_budget.SEARCHERS)
    gone = cells.folder / "tot-3-value.json"
    gone.unlink()
    written = {path: path.stat().st_mtime_ns for path in cells.folder.glob("[et]*.json")}
    again, _ = studied(settings)
    assert again["found"].points == points and gone.is_file()
    assert written == {path: path.stat().st_mtime_ns for path in written}, "only what was missing was measured"


@pytest.mark.runs
def test_cells_of_other_settings_are_refused(settings: SearchBudget, tmp_path: Path) -> None:
    one = {"tasks": 6, "seed": 0}
    Cells(tmp_path / "a", one).get("x", lambda: Interval(0.5, 0.4, 0.6))
    assert Cells(tmp_path / "a", one).get("x", lambda: 1 / 0) == {"mean": 0.5, "low": 0.4, "high": 0.6}
    with pytest.raises(UserError, match="was measured with another seed: name another folder with --cells"):
        Cells(tmp_path / "a", {**one, "seed": 1})
    with pytest.raises(ZeroDivisionError):
        Cells(tmp_path / "a", one).get("y", lambda: 1 / 0)
    assert not (tmp_path / "a" / "y.json").exists(), "what broke leaves no cell"


def points(better: float, tasks: int = 400) -> list[Point]:
    """Half of the tasks are solved; whoever goes by values solves a share ``better`` more."""

    def point(agent: Agent, scorer: str, share: float, budget: int) -> Point:
        return Point(agent, scorer, budget, tuple(float(i < share * tasks) for i in range(tasks)), (8.0,) * tasks)

    found = [point(Agent.REACT, "none", 0.5, 1)]
    for kind, more in ((K.RANDOM, 0.0), (K.LOGPROB, 0.0), (K.VALUE, better), (K.VALUE_LOGPROB, better)):
        found.append(point(Agent.TOT, kind, 0.6 + more, 2))
    return found


def test_the_control_prefers_short_episodes() -> None:
    long, short = line(0, True, logps=(-1.0,) * 4), line(0, False, logps=(-1.0,) * 2)
    assert shortest([[long, short]], 2).success == (0.0,) and shortest([[long, short]], 2).tokens == (30.0,)
    assert shortest([[short, replace(short, success=1.0)]], 2).success == (0.0,), "of equal ones the first"
    assert shortest([[long, replace(short, success=1.0)]], 2).success == (1.0,)


def test_conditions_can_fail() -> None:
    figures = {"failing_saved": Interval(0.3, 0.2, 0.4), "success_lost": Interval(0.005, 0.0, 0.01)}
    good = [{"scorer": "value", "figures": figures}]
    far, near, none = (list(conditions(rows_of(points(better)), good)) for better in (0.2, 0.02, 0.0))
    assert len(far) == 8 and all(holds for _, holds in far)
    assert [holds for _, holds in near] == [True, True, True, False, True, False, True, True], "above, but not apart"
    assert [holds for _, holds in none] == [True, True, False, False, False, False, True, True]
    few = [replace(p, success=p.success[::2], tokens=p.tokens[::2]) for p in points(0.2)]
    bad = [{"scorer": "value", "figures": figures | {"failing_saved": Interval(0.2, 0.1, 0.3)}}]
    failed = [line for line, holds in conditions(rows_of(few), bad) if not holds]
    assert len(failed) == 2 and failed[0].startswith("200 tasks") and "saves 0.200" in failed[1]


def test_what_has_no_critic_is_refused(settings: SearchBudget, tmp_path: Path) -> None:
    flags = ("--algo", "grpo", "--updates", "1", "--eval-every", "0", "--test-tasks", "0")
    with training(tmp_path / "none", *flags) as run:
        run.run()
    none = opened(replace(settings, run=tmp_path / "none"), Console(quiet=True))
    with pytest.raises(UserError, match="has no critic: name a run of an algorithm with one"), none:
        pass


@pytest.mark.runs
def test_results_are_written(settings: SearchBudget, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = {"run": settings.run, "name": settings.name, "tasks": 6, "valid-tasks": 6, "samples": 2, "branch": 2}
    flags |= {"cells": settings.cells, "out": settings.out}
    argv = [str(x) for name, value in flags.items() for x in (f"--{name}", value)]
    monkeypatch.setattr(sys, "argv", ["search_budget.py", *argv, "--budgets", "2", "3"])
    with pytest.raises(SystemExit) as ended:
        search_budget.main()
    told = json.loads((settings.out / "search-small.json").read_text())
    assert ended.value.code == 1, "six tasks are too few"
    assert {"rows", "early_stop", "weights", "critic", "conditions", "settings"} <= set(told)
    assert {path.suffix for path in settings.out.glob("search-small.*")} == {".json", ".md", ".csv", ".png"}
