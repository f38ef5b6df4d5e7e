"""Environments for TRL's GRPOTrainer (extra `trl`): a class for its ``environment_factory``, tasks, and the reward.

    from runners.interop.for_trl import dataset, environment_factory, reward

    GRPOTrainer(
        model=…, train_dataset=dataset("wiki"), environment_factory=environment_factory("wiki"), reward_funcs=reward
    )

Invariant: every call that TRL hands over is a turn of the environment, well-formed or not. What TRL itself refuses (a
tool that there is not, arguments that are no object) never reaches the environment and is no turn.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import Parameter, Signature
from typing import Any, ClassVar

from agent_envs import registry
from agent_envs.core import SettingsError, TextEnv, check_split
from agent_envs.tools import tools_of
from runners.interop.episodes import Episodes

OVER = "The episode is over."
"""What the last answer of an episode says: TRL has no other sign for it."""
_TAKEN = ("reset", "get_reward")
"""Methods of which TRL makes no tool."""


class Environment:
    """A rollout's environment. Its public methods but `reset` are the tools; `environment_factory` adds them."""

    _make: ClassVar[Callable[[], TextEnv]]

    def __init__(self) -> None:
        self._episodes = _episodes(type(self)._make())

    def reset(self, task: str, seed: int | None = None, **row: Any) -> str:
        """Begins the episode of a row of `dataset`; returns its prompt. Raises SettingsError for an unknown task."""
        return self._episodes.begin(task, seed=seed)


def environment_factory(env: str, **settings: Any) -> type[Environment]:
    """What GRPOTrainer takes under this name: the environment with its actions as methods.

    ``settings`` are those of the environment, as `gymnasium.make` takes them. An environment whose turns are thoughts
    has no tools: `reward` plays the whole message. Raises SettingsError.
    """
    make = partial(registry.from_settings, env, **settings)
    made = make()
    made.prepare()
    tools = [tool["function"] for tool in (tools_of(made.grammar, "en") if made.grammar.verbs else ())]
    if lost := [one["name"] for one in tools if one["name"] in _TAKEN or one["name"].startswith("_")]:
        raise SettingsError(f"{env}: TRL makes no tool of an action called {lost[0]}")
    methods = {tool["name"]: _method(tool) for tool in tools}
    return type(f"{env.title().replace('_', '')}Environment", (Environment,), {**methods, "_make": staticmethod(make)})


def dataset(env: str, split: str = "train", *, count: int = 1000, seed: int = 0, **settings: Any) -> Any:
    """A `datasets.Dataset` with a row for each of ``count`` tasks of the split at most, drawn with ``seed``.

    A row holds the system prompt, the name of the environment (TRL reads it where there are several), the task's id and
    the seed of its episodes. Raises SettingsError.
    """
    from datasets import Dataset

    check_split(env, split)
    made = registry.from_settings(env, **settings)
    made.prepare()
    episodes, tasks = _episodes(made), made.tasks(split)
    prompts: dict[str, str] = {}
    rows = []
    for number in random.Random(seed).sample(range(len(tasks)), min(count, len(tasks))):
        task = tasks[number]
        if task.language not in prompts:
            episodes.begin(task.id, split=split)
            prompts[task.language] = episodes.instructions
        messages = [{"role": "system", "content": prompts[task.language]}, {"role": "user", "content": ""}]
        rows.append({"prompt": messages, "environment": env, "task": task.id, "seed": seed + number})
    return Dataset.from_list(rows)


def reward(
    completions: Sequence[Sequence[Mapping[str, Any]]], environments: Sequence[Environment], **_: Any
) -> list[float | None]:
    """The rewards of the episodes; None, which TRL leaves out, where the environment broke.

    An episode that the model left unfinished has what it got so far.
    """
    return [_score(one._episodes, said) for one, said in zip(environments, completions, strict=True)]


def _score(episodes: Episodes, completion: Sequence[Mapping[str, Any]]) -> float | None:
    if not episodes.env.grammar.verbs and not episodes.over:
        episodes.message(completion[-1]["content"] or "")
    return None if episodes.fault else episodes.total


def _episodes(env: TextEnv) -> Episodes:
    return Episodes(env, calls=bool(env.grammar.verbs))


def _method(tool: Mapping[str, Any]) -> Callable[..., str]:
    """A method whose signature and docstring say what the JSON schema of the tool says: TRL reads them."""
    properties, required = tool["parameters"]["properties"], tool["parameters"]["required"]

    def method(self: Environment, /, **arguments: Any) -> str:
        turn = self._episodes.call(tool["name"], arguments)
        return f"{turn.text}\n{OVER}".lstrip("\n") if turn.over else turn.text

    method.__name__ = method.__qualname__ = tool["name"]
    described = "".join(f"\n    {name}: {wanted['description']}" for name, wanted in properties.items())
    method.__doc__ = tool["description"] + (f"\n\nArgs:{described}" if described else "")
    method.__annotations__ = dict.fromkeys(properties, str)
    parameters = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=Parameter.empty if name in required else "", annotation=str)
        for name in properties
    ]
    signature = Signature([Parameter("self", Parameter.POSITIONAL_ONLY), *parameters])
    method.__signature__ = signature  # type: ignore[attr-defined]
    return method
