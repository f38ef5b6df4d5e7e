"""What trained policies do with their tools on held-out tasks, and how many turns their training played.

    python benchmarks/tool_calls.py --runs runs/learning/research-grpo-0 runs/learning/research-arpo-0

For each run folder of an environment with several tools: success, the share of the successes that used every tool and
the calls of an episode, sampled and greedy, with 95 % intervals over tasks. Beside them the turns that training played
until it first had, over three updates, the success `reached`; a turn that several episodes of a fork share counts once.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import torch
import tyro
from rich.console import Console
from rich.table import Table

from benchmarks.held_out import TrainedPolicy
from runners.command_line.plain import dump_json
from runners.evaluation.measure import PlayedTasks
from runners.statistics.intervals import Interval, bootstrap
from runners.training.report import versions

_SMOOTH = 3
"""Updates over which the success of training is averaged."""


@dataclass(frozen=True)
class ToolCalls:
    """Tool calls on held-out tasks and in training."""

    runs: tuple[Path, ...]
    """Run folders."""
    tasks: int = 500
    """Held-out tasks."""
    reached: tuple[float, ...] = (0.3, 0.35, 0.4)
    """Success in training until which turns are counted."""
    out: Path = Path("benchmarks/results/research-tool-calls.json")
    """File for the result."""


@dataclass(frozen=True)
class Held:
    """What a policy did on the held-out tasks."""

    success: Interval
    all_tools: Interval | None
    """Share of the successes that used every tool; None without a success."""
    calls: Interval
    """Calls of an episode."""
    calls_of_successes: Interval | None


def held(played: PlayedTasks) -> Held:
    won = [episode.metrics for episode in played.episodes if episode.success]
    of_won = [bootstrap([metrics[name] for metrics in won]) if won else None for name in ("all_tools", "tool_calls")]
    return Held(played.success(), of_won[0], played.metric("tool_calls"), of_won[1])


def turns_until(rows: Sequence[dict[str, Any]], reached: float) -> int | None:
    """Turns played in training until the mean success of the last updates is at least this; None if it never was."""
    for at in range(_SMOOTH, len(rows) + 1):
        if sum(row["success"] for row in rows[at - _SMOOTH : at]) / _SMOOTH >= reached:
            return int(rows[at - 1]["env_steps"])
    return None


def play(folder: Path, tasks: int, console: Console) -> Iterator[tuple[str, Held]]:
    """(how it was decoded, what it did)"""
    policy = TrainedPolicy(folder, console)
    name, config = policy.run.settings.only_env("tool_calls")
    for how in ("sampled", "greedy"):
        yield how, held(policy.play(name, config, tasks, greedy=how == "greedy"))


def main() -> None:
    settings = tyro.cli(ToolCalls)
    torch.set_num_threads(1)
    console = Console()
    table = Table(title="tools on held-out tasks, 95 % intervals over tasks")
    for name in ("run", "success", "of these with all tools", "calls"):
        table.add_column(name)
    result: dict[str, Any] = {}
    for folder in settings.runs:
        lines = (folder / "metrics.jsonl").read_text("utf-8").splitlines()
        rows = [row for row in map(json.loads, lines) if "env_steps" in row]
        until = {str(reached): turns_until(rows, reached) for reached in settings.reached}
        result[folder.name] = {"turns until": until, "turns of training": rows[-1]["env_steps"]}
        for how, found in play(folder, settings.tasks, console):
            table.add_row(f"{folder.name}, {how}", str(found.success), str(found.all_tools), str(found.calls))
            result[folder.name][how] = asdict(found)
        console.print(f"{folder.name}: turns of training until a success of {until}")
    console.print(table)
    settings.out.write_text(dump_json(result | {"versions": versions()}), "utf-8")


if __name__ == "__main__":
    main()
