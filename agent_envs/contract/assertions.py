"""Shared by all checks of the contract: the error, and a step whose values are type-checked."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from agent_envs.actions import BLANK
from agent_envs.core import SPLITS, Task, TextEnv

Make = Callable[[], TextEnv]


class ContractError(AssertionError):
    """An environment breaks the contract."""


def frozen(env: TextEnv) -> bytes:
    try:
        return pickle.dumps(env)
    except Exception as error:
        raise ContractError(f"{env.name}: cannot be pickled ({error}): keep handles out of its state") from error


def need(condition: bool, env: TextEnv, message: str) -> None:
    if not condition:
        raise ContractError(f"{env.name}: {message}")


def sample(env: TextEnv, tasks: int) -> list[Task]:
    return [env.tasks(split)[at] for split in SPLITS for at in range(min(tasks, len(env.tasks(split))))]


def idle(env: TextEnv) -> str:
    """A turn that leads nowhere: refused, or a thought of nothing where turns are thought factors."""
    return f"no action at all{BLANK if env.openings else ''}"


def next_turn(env: TextEnv) -> str:
    """The expert's turn; of an environment without one, a turn that leads nowhere."""
    return env.expert() if env.has_expert else idle(env)


def step(env: TextEnv, text: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
    """One step whose five values have the right types."""
    result = env.step(text)
    observation, reward, terminated, truncated, info = result
    need(isinstance(observation, str), env, f"an observation must be a str, not {type(observation).__name__}")
    need(type(reward) is float and np.isfinite(reward), env, f"a reward must be a finite float, not {reward!r}")
    need(type(terminated) is bool and type(truncated) is bool, env, "terminated and truncated must be bools")
    wanted = {"success", "invalid", "error", "action", "metrics"}
    need(wanted <= set(info), env, f"info lacks {sorted(wanted - set(info))}")
    need(all(type(value) is float for value in info["metrics"].values()), env, "metrics must be floats")
    return result
