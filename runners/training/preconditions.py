"""What a run can be refused for before its model is loaded: the tiny one may take minutes to make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console

from agent_envs import registry
from agent_envs.core import Task
from agent_envs.plugins import missing_extra
from agents.judge import JudgeKind, JudgeSettings
from agents.model.attention.backends import check as check_attention
from agents.rollout.search.settings import SearchPlan
from runners.command_line.errors import UserError
from runners.evaluation.tasks import SplitTasks, has_oracle, pick_tasks
from runners.loading.base_model import device_of
from runners.settings.fitting import check_fit
from runners.settings.judge import judge_settings
from runners.settings.run_settings import RunSettings
from runners.settings.train_settings import Train
from runners.training.searching import search_of
from runners.workers.registry import WORKERS, Backend


@dataclass(frozen=True)
class Checked:
    """What a run will play and measure, and who judges."""

    search: SearchPlan | None
    """How every task is searched; None: it is not."""
    judge: JudgeSettings | None
    """None where actions are not judged."""
    oracle: bool
    """Whether episodes ask their environment's oracle."""
    tasks: Mapping[str, SplitTasks]
    """Training tasks, by environment."""
    measured: Mapping[str, Mapping[str, Sequence[Task]]]
    """Tasks that success is measured on, by split and environment."""
    backend: Backend
    """How rollout workers are opened."""
    apart: bool
    """Whether these live in other processes."""


def checked(settings: RunSettings, console: Console, begun: bool) -> Checked:
    """Looks at everything that needs no model; a run that was ``begun`` is resumed. Raises UserError."""
    train, algorithm = settings.train, settings.algorithm
    judge = judge_settings(settings)
    search = search_of(settings)
    check_fit(settings, begun=begun)
    check_attention(train.attention, device_of(train.device))
    envs = registry.make_all(settings.env)
    tasks = {name: SplitTasks(env, "train") for name, env in envs.items()}
    measured = {
        split: {name: pick_tasks(env, split, n, console) for name, env in envs.items()}
        for split, n in evaluated(train).items()
    }
    asks_oracle = {
        f"--algo {train.algo}": algorithm.needs.oracle,
        "--judge.kind oracle": judge is not None and judge.kind == JudgeKind.ORACLE,
        "--react.oracle": settings.react.oracle,
    }
    asking = [flag for flag, asks in asks_oracle.items() if asks]
    if asking and (blind := [name for name, env in envs.items() if not has_oracle(env, "train")]):
        raise UserError(f"{asking[0]} needs an oracle, and the environment {blind[0]} has none")
    name, _ = train.backend
    try:
        backend = WORKERS.get(name)
    except ValueError as error:
        raise UserError(f"--workers {train.workers}: {error}") from None
    if missing := missing_extra(backend):
        raise UserError(f"--workers {train.workers} is {missing}")
    apart = name != "local"
    settings.engine_choice.check(apart=apart)
    return Checked(search, judge, bool(asking), tasks, measured, backend, apart)


def evaluated(train: Train) -> dict[str, int]:
    """The splits that are measured in a run, each with how many of its tasks."""
    often = bool(train.eval_every) and (train.env_steps > 0 or train.eval_every < train.updates)
    asked = {"test": train.test_tasks, "valid": train.eval_tasks if often else 0}
    return {split: n for split, n in asked.items() if n}
