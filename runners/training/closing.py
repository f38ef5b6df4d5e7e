"""The end of a run: the learning curve, what was reached, and which command comes next."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runners.command_line.program import command
from runners.reporting.plots import GREY, plot
from runners.settings.train_settings import Train
from runners.training.evaluations import by_env
from runners.training.phases import PHASES

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def closing(train: Train, folder: Path, summary: Mapping[str, Any], page: Path) -> Iterator[str]:
    """The lines; ``summary`` is what summary.json holds."""
    for env, mine in by_env(summary, train.env).items():
        for mode, final in mine["final"].items():
            start = mine["start"].get(mode)
            reached = f"{start['mean']:.2f} → {_interval(final)}" if start else _interval(final)
            yield f"{env}, {train.algo}: success on test tasks, {mode}: {reached}"
        if not mine["final"]:
            yield f"{env}, {train.algo}: success was not measured on test tasks (--test-tasks 0)"
    yield f"picture: {folder / 'curve.png'}"
    yield f"page:    {page}"
    yield f"figures: {folder / 'summary.json'}"
    named = shlex.quote(str(folder))
    yield f"next:    {command('evaluate')} --model {named}    # the base model against the trained one, in full"
    yield f"         {command('train')} --init-from {named}    # go on from what was learned"


def _interval(figures: Mapping[str, float]) -> str:
    return "{mean:.2f} [{low:.2f}, {high:.2f}]".format(**figures)


def draw_curve(folder: Path, title: str, envs: Sequence[str] = ("",)) -> Path:
    """Draws curve.png from metrics.jsonl: success of training batches and evaluations against time. Each of several
    environments has a panel."""
    entries = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    updates = [e for e in entries if e["kind"] == "update"]
    # The second at which the first update began: after the model was made and first measured.
    origin = updates[0]["seconds"] - sum(updates[0].get(part, 0.0) for part, *_ in PHASES) if updates else 0.0
    several = len(envs) > 1
    path = folder / "curve.png"
    with plot(path, 7 + 5 * (len(envs) - 1), 4, len(envs)) as panels:
        for axes, env in zip(panels, envs, strict=True):
            key = f"{env}/success" if several else "success"
            there = [e for e in updates if key in e]
            measured = [e for e in entries if e["kind"] == "evaluation" and (not several or e["env"] == env)]
            _panel(axes, [(e["seconds"] - origin, e[key]) for e in there], measured, origin)
            axes.set(xlabel="seconds since the first update began", ylabel="success", ylim=(0, 1))
            axes.set_title(f"{env}: {title}" if several else title)
            axes.legend(loc="lower right", frameon=False)
    return path


def _panel(
    axes: Axes, batches: Sequence[tuple[float, float]], measured: Sequence[Mapping[str, Any]], origin: float
) -> None:
    """Draws (second, success) of training batches, and the evaluations."""
    evaluations: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for entry in measured:
        evaluations.setdefault((entry["split"], entry["mode"]), []).append(entry)
    seconds, success = ([one[i] for one in batches] for i in (0, 1))
    axes.plot(seconds, success, lw=1, color=GREY, label="training batches, sampled")
    colours = ("#1f77b4", "#d62728", "#2ca02c", "#ff7f0e")
    for ((split, mode), mine), colour in zip(evaluations.items(), colours, strict=False):
        seconds, mean = [max(0, e["seconds"] - origin) for e in mine], [e["mean"] for e in mine]
        error = [[e["mean"] - e["low"] for e in mine], [e["high"] - e["mean"] for e in mine]]
        line = 1.5 if split == "valid" else 0  # before and after: nothing is known about what lies between
        style: dict[str, Any] = {"marker": "o", "ms": 3.5, "lw": line, "elinewidth": 1.5, "capsize": 3}
        axes.errorbar(seconds, mean, yerr=error, label=f"{split} tasks, {mode}", color=colour, **style)
