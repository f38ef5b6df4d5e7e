"""Plays a suite with one agent, shows the row and writes it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console

from agent_envs.core import Task
from runners.benching import table
from runners.benching.fingerprints import FixedTasks, fixed_tasks
from runners.benching.players import Player, ScriptedPlayer
from runners.benching.results import EntryResult, Row
from runners.benching.settings import Bench
from runners.benching.suites import SUITES, Suite
from runners.command_line.outputs import check_file, writing
from runners.command_line.plain import dump_json
from runners.reporting.hardware import hardware
from runners.reporting.progress import evaluating
from runners.training.report import versions


def run(bench: Bench, parts: dict[str, Any]) -> None:
    """The whole program, for settings that were checked. Raises UserError."""
    if bench.out:
        check_file(bench.out)
    console, suite = Console(), SUITES[bench.suite]
    fixed = fixed_tasks(suite)
    with player_of(bench, parts, fixed, console) as player:
        row = play(bench, suite, fixed, player, console)
    label = label_of(bench)
    table.show(row, label, console)
    seconds = sum(entry.seconds for entry in row.entries)
    console.print(f"measured: {seconds:.1f} s on {hardware()}", soft_wrap=True, highlight=False, markup=False)
    if bench.out:
        with writing(bench.out):
            bench.out.write_text(dump_json(written(bench, row, label, suite)), "utf-8")


@contextmanager
def player_of(
    bench: Bench, parts: Mapping[str, Any], fixed: Sequence[FixedTasks], console: Console
) -> Iterator[Player]:
    """What plays. Raises UserError."""
    if bench.baseline is not None:
        scripted = ScriptedPlayer(bench.baseline, bench.seed)
        scripted.check(fixed)
        yield scripted
    elif bench.endpoint:
        from runners.benching.served_player import served_player

        with served_player(bench, parts, fixed) as served:
            yield served
    else:
        from runners.benching.local_player import local_player

        with local_player(bench, parts, fixed, console) as local:
            yield local


def play(bench: Bench, suite: Suite, fixed: Sequence[FixedTasks], player: Player, console: Console) -> Row:
    """The row of a player. Raises UserError."""
    chosen = [some(one.tasks, bench.tasks) for one in fixed]
    entries = []
    with evaluating(console, sum(map(len, chosen))) as advance:
        for one, tasks in zip(fixed, chosen, strict=True):
            began = perf_counter()
            results = tuple(player.play(one, tasks, advance))
            entries.append(EntryResult(one.entry.name, one.entry.fingerprint, results, perf_counter() - began))
    whole = all(len(tasks) == len(one.tasks) for one, tasks in zip(fixed, chosen, strict=True))
    return Row(suite.name, suite.content, whole, player.agent, bench.seed, player.settings, tuple(entries))


def some(tasks: Sequence[Task], most: int | None) -> list[Task]:
    """At most this many tasks, spread evenly; None is all of them."""
    n = len(tasks) if most is None else min(most, len(tasks))
    return [tasks[int(i)] for i in np.linspace(0, len(tasks) - 1, n).round().astype(int)]


def label_of(bench: Bench) -> str:
    """What the row is called."""
    if bench.baseline is not None:
        return bench.baseline.value
    return bench.model.rstrip("/").rpartition("/")[2] or bench.model


def written(bench: Bench, row: Row, label: str, suite: Suite) -> dict[str, Any]:
    """What --out holds."""
    return {
        "digest": row.digest,
        "reproducible": row.reproducible(),
        "figures": row.figures(),
        "measured": {
            "label": label,
            "model": bench.model,
            "endpoint": bench.endpoint,
            "seconds": {entry.name: entry.seconds for entry in row.entries},
            "hardware": hardware(),
            "versions": {**versions(), **_packages(suite)},
        },
        "suite": suite,
    }


def _packages(suite: Suite) -> dict[str, str]:
    """Versions of the outside packages that make the tasks."""
    names = {entry.package.partition(" ")[0] for entry in suite.entries if entry.package}
    return {name: metadata.version(name) for name in sorted(names)}
