"""The sources of tasks, by ``--math.source``."""

from functools import lru_cache, partial

from agent_envs.core import Task, TaskSet, check_split, number_after
from agent_envs.math.config import GENERATED, MathConfig
from agent_envs.math.problem import generate


def tasks_of(config: MathConfig, split: str) -> TaskSet:
    """The tasks of a split. Raises SettingsError for a source that cannot be had."""
    check_split("math", split)
    number_of = partial(number_after, f"math-{split}-")
    if config.source == GENERATED:
        size = config.train_tasks if split == "train" else config.held_out_tasks
        return TaskSet(size, partial(generate, config, split), number_of)
    result = _loaded(config)[split]
    return TaskSet(len(result), result.__getitem__, number_of)


@lru_cache(maxsize=8)
def _loaded(config: MathConfig) -> dict[str, tuple[Task, ...]]:
    if config.source.startswith("reasoning-gym:"):
        from agent_envs.math.reasoning_gym_tasks import load
    else:
        from agent_envs.math.files import load
    return load(config)
