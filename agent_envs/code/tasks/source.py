"""The sources of tasks, by ``--code.source``."""

from __future__ import annotations

from functools import partial

from agent_envs.code.tasks.generate import generate
from agent_envs.code.tasks.settings import GENERATED, TaskSettings
from agent_envs.core import TaskSet, check_split, number_after


def build(config: TaskSettings, split: str, *, sandbox: str = "auto") -> TaskSet:
    """The tasks of a split; `Task.data` is a `CodeTask`.

    ``sandbox`` names the one in which known solutions of a file run, where it gives inputs but no results.
    Raises SettingsError for a source that cannot be read.
    """
    check_split("code", split)
    if config.source == GENERATED:
        return generate(config, split)
    from agent_envs.code.tasks.files import load

    result = load(config, sandbox)[split]
    return TaskSet(len(result), result.__getitem__, partial(number_after, f"code-{split}-"))
