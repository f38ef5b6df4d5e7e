"""Text environments for agents that act over many turns: plain Python and Gymnasium, no model library.

Importing this package registers the Gymnasium ids (``agent_envs/Wiki-v0`` …) and imports no environment.
"""

from agent_envs.core import BackendUnavailable, Outcome, SettingsError, Task, TaskSet, TextEnv
from agent_envs.registry import ENVS, env_class, make, names, register
from agent_envs.spaces import AnyText

register()

__all__ = [
    "ENVS",
    "AnyText",
    "BackendUnavailable",
    "Outcome",
    "SettingsError",
    "Task",
    "TaskSet",
    "TextEnv",
    "env_class",
    "make",
    "names",
]
