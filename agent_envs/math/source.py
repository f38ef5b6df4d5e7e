"""Where tasks come from, by ``--math.source``."""

from __future__ import annotations

from functools import lru_cache, partial

from agent_envs.core import SPLITS, SettingsError, Task, TaskSet
from agent_envs.math.config import GENERATED, MathConfig
from agent_envs.math.problem import generate


def tasks_of(config: MathConfig, split: str) -> TaskSet:
    """The tasks of a split. Raises SettingsError for a source that cannot be had."""
    if split not in SPLITS:
        raise SettingsError(f"math: no split {split!r}: use one of {', '.join(SPLITS)}")

    def number_of(task_id: str) -> int | None:
        number = task_id.removeprefix(f"math-{split}-")[:9]
        # Not isdecimal alone: 017 and other writings of a number would name the same task.
        return int(number) if number.isdecimal() and task_id == f"math-{split}-{int(number)}" else None

    if config.source == GENERATED:
        size = config.train_tasks if split == "train" else config.held_out_tasks
        return TaskSet(size, partial(generate, config, split), number_of)
    found = _loaded(config)[split]
    return TaskSet(len(found), found.__getitem__, number_of)


@lru_cache(maxsize=8)
def _loaded(config: MathConfig) -> dict[str, tuple[Task, ...]]:
    if config.source.startswith("reasoning-gym:"):
        from agent_envs.math.gym import load
    else:
        from agent_envs.math.files import load
    return load(config)
