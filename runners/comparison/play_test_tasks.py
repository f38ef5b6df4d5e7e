"""Plays test tasks with the policy a run ended with, or with the one it began from, and writes what came of each task.

    python runners/comparison/play_test_tasks.py --run RUN --out FILE

``runners/compare.py`` starts it once per run. The file tells success task by task, so that intervals over tasks and
pairs of runs can be made of several files.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent.parent)
    import runners

    runners.run("comparison.play_test_tasks")

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from rich.console import Console

from agent_envs import registry
from runners.command_line.parse import parse
from runners.command_line.plain import dump_json
from runners.comparison.runs import Measured
from runners.evaluation.measure import PlayedTasks, evaluate_tasks
from runners.evaluation.policies import load_policies
from runners.evaluation.tasks import pick_tasks
from runners.run_folder.folder import write_whole
from runners.run_folder.runs import read_run


@dataclass(frozen=True)
class Final:
    """Play test tasks with a run's policy."""

    run: Path = Path()
    """Run folder."""
    out: Path = Path("final.json")
    """File for the result."""
    policy: Literal["trained", "base"] = "trained"
    """The policy the run ended with, or the one it began from."""
    measured: Measured = field(default_factory=Measured)
    """What is played."""


def measure(final: Final, console: Console) -> dict[str, Any]:
    """What the policy did: success of every task sampled and greedily, and how many samples of a task were right."""
    run = read_run(final.run)
    torch.set_num_threads(run.train.threads)
    env = registry.make(*run.settings.only_env("compare"))
    play_settings = run.settings.play(exact=True)
    policies = load_policies(str(final.run), play_settings, console, device=run.train.device, dtype=run.train.dtype)
    asked = final.measured
    found: dict[str, Any] = {"measured": asked, "policy": final.policy}
    with policies.playing() as controller:
        controller.load(0, policies.adapters[final.policy])

        def play(tasks: int, samples: int, greedy: bool) -> PlayedTasks:
            sampling, chosen = run.train.sampling(greedy), pick_tasks(env, "test", tasks)
            return evaluate_tasks(controller, sampling, chosen, console, seed=run.train.seed, samples=samples)

        for mode, greedy in (("sampled", False), ("greedy", True)):
            result = play(asked.test_tasks, 1, greedy)
            found[mode] = result.successes()
            found[f"{mode}_turns"] = result.per_task(lambda e: float(len(e.turns)))
        found["tasks"] = [task.id for task in result.tasks]
        if asked.pass_samples:
            result = play(asked.pass_tasks, asked.pass_samples, greedy=False)
            found["pass"] = {"tasks": [task.id for task in result.tasks], "right_of": result.right_of()}
    return found


def main() -> None:
    final, _ = parse(Final)
    result = measure(final, Console())
    write_whole(final.out, dump_json(result, indent=None))
