"""Plays test tasks with the policy a run ended with, or with the one it began from, and writes what came of each task.

    python runners/comparison/play_test_tasks.py --run RUN --out FILE

``runners/compare.py`` starts it once per run. The file tells success task by task, so that intervals over tasks and
pairs of runs can be made of several files.
"""

import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent.parent)

from dataclasses import dataclass
from typing import Any, Literal

import torch
from rich.console import Console

from agent_envs import registry
from runners.command_line.errors import run_program
from runners.command_line.parse import parse
from runners.command_line.plain import dump_json
from runners.comparison.runs import Measured
from runners.evaluation.measure import PlayedTasks, evaluate_tasks, pick_tasks
from runners.evaluation.policies import load_policies
from runners.run_folder.folder import write_whole
from runners.run_folder.runs import read_run
from runners.workers.controller import Controller
from runners.workers.local import LocalWorkers


@dataclass(frozen=True)
class Final:
    """Play test tasks with a run's policy."""

    run: Path = Path()
    """Run folder."""
    out: Path = Path("final.json")
    """File for the result."""
    policy: Literal["trained", "base"] = "trained"
    """The policy the run ended with, or the one it began from."""
    test_tasks: int = 500
    """Test tasks, played once sampled and once greedily."""
    pass_samples: int = 0
    """Episodes of each task, for pass@k; 0 for none."""
    pass_tasks: int = 100
    """Test tasks for pass@k."""


def measure(final: Final, console: Console) -> dict[str, Any]:
    """What the policy did: success of every task sampled and greedily, and how many samples of a task were right."""
    run = read_run(final.run)
    torch.set_num_threads(run.train.threads)
    env = registry.make(run.train.env, run.settings.env)
    play_settings = run.settings.play(exact=True)
    policies = load_policies(str(final.run), play_settings, console, device=run.train.device, dtype=run.train.dtype)
    workers = LocalWorkers(lambda: policies.worker)
    workers.start()
    controller = Controller(workers, run.train.slots, run.settings.faults)
    controller.load(0, policies.adapters[final.policy])

    def play(tasks: int, samples: int, greedy: bool) -> PlayedTasks:
        sampling = run.train.sampling(greedy)
        chosen = pick_tasks(env, "test", tasks)
        return evaluate_tasks(controller, sampling, chosen, console, seed=run.train.seed, samples=samples)

    found: dict[str, Any] = {
        "measured": Measured(final.test_tasks, final.pass_samples, final.pass_tasks),
        "policy": final.policy,
    }
    try:
        for mode, greedy in (("sampled", False), ("greedy", True)):
            result = play(final.test_tasks, 1, greedy)
            found[mode] = result.successes()
            found[f"{mode}_turns"] = result.per_task(lambda e: float(len(e.turns)))
        found["tasks"] = [task.id for task in result.tasks]
        if final.pass_samples:
            result = play(final.pass_tasks, final.pass_samples, greedy=False)
            found["pass"] = {"tasks": [task.id for task in result.tasks], "right_of": result.right_of()}
    finally:
        workers.close()
    return found


def main() -> None:
    final, _ = parse(Final, lambda _: {}, about=Final.__doc__ or "")
    result = measure(final, Console())
    write_whole(final.out, dump_json(result, indent=None))


if __name__ == "__main__":
    run_program(main)
