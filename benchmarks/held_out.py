"""The trained policy of a run, on held-out tasks: what several measurements play."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from agent_envs import registry
from agent_envs.core import TextEnv
from agents.rollout.play import rollout
from agents.tree.episode import Job
from runners.evaluation.measure import PlayedTasks
from runners.evaluation.policies import load_policies
from runners.evaluation.tasks import pick_tasks
from runners.run_folder.runs import read_run

SLOTS = 128


class TrainedPolicy:
    """The policy that the newest checkpoint of a run folder holds."""

    def __init__(self, folder: Path, console: Console) -> None:
        self.run = read_run(folder)
        policies = load_policies(str(folder), self.run.settings.play(slots=SLOTS, exact=True), console)
        self._worker = policies.worker
        self._worker.engine.load(1, policies.adapters["trained"])

    def play(
        self,
        env: str,
        config: Any,
        tasks: int,
        *,
        greedy: bool = False,
        samples: int = 1,
        made: Callable[[], TextEnv] | None = None,
    ) -> PlayedTasks:
        """Plays test tasks of an environment, as ``made`` makes it; by default it is the usual one."""
        worker = self._worker
        worker.engine.sampling = self.run.train.sampling(greedy)
        picked = pick_tasks(registry.make(env, config), "test", tasks)
        jobs = [Job(task, sample) for task in picked for sample in range(samples)]
        make = made or (lambda: registry.make(env, config))
        played = rollout(make, worker.engine, worker.chat, jobs, self.run.settings.react)
        return PlayedTasks(tuple(played.outcomes), samples)
