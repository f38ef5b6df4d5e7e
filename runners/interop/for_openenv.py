"""An environment as an OpenEnv server (extra `openenv`): each session of a client plays in an environment of its own.

An action is the whole text of a model's turn, as every program here plays it. Tasks are found and chosen as OpenEnv's
task API has it: `reset(split="test", index=3)`; `reset(task=…)` takes an id.
"""

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, EnvironmentMetadata, Observation, State
from pydantic import Field

from agent_envs.core import SPLITS, TextEnv, check_split
from runners.interop.episodes import Episodes

MOST_LISTED = 1000
"""Tasks of a split that are listed at most; each can be asked for."""


class TextAction(Action):
    """A turn."""

    text: str = Field(description="the whole text of the model's turn, in the format that the instructions describe")


class TextObservation(Observation):
    """What a turn, or a reset, led to. The text is untrusted."""

    text: str
    task: str
    instructions: str = Field(default="", description="the system prompt; of a reset only")
    success: bool | None = Field(default=None, description="the verdict, once the episode is over")
    truncated: bool = False
    invalid: bool = False


class EpisodeState(State):
    """Where an episode stands."""

    task: str = ""
    reward: float = 0.0
    success: bool | None = None


class Session(Environment):
    """The environment of one client."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, env: TextEnv, split: str) -> None:
        super().__init__()
        self._episodes, self._split, self._id = Episodes(env), split, ""

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task: str | None = None,
        split: str | None = None,
        index: int | None = None,
    ) -> TextObservation:
        """Begins an episode; without a task or an index one is drawn from the split. Raises SettingsError."""
        env = self._episodes.env
        if index is not None:
            task = self.get_task(split or self._split, index)["id"]
        text = self._episodes.begin(task, split=split or (None if task else self._split), seed=seed)
        self._id = episode_id or ""
        return TextObservation(text=text, task=self._episodes.task, instructions=env.system_prompt())

    def step(self, action: TextAction, timeout_s: float | None = None, **_: Any) -> TextObservation:
        """Plays a turn. Raises NotRunning."""
        turn = self._episodes.message(action.text)
        return TextObservation(
            text=turn.text, task=self._episodes.task, done=turn.over, reward=turn.reward,
            success=turn.success, truncated=turn.truncated, invalid=turn.invalid,
        )  # fmt: skip

    @property
    def state(self) -> EpisodeState:
        now = self._episodes
        return EpisodeState(
            episode_id=self._id or None, step_count=now.turns, task=now.task, reward=now.total, success=now.success
        )

    def get_metadata(self) -> EnvironmentMetadata:
        env = self._episodes.env
        return EnvironmentMetadata(name=env.name, description=env.instructions("en"))

    def close(self) -> None:
        self._episodes.env.close()

    # -- OpenEnv's task API ----------------------------------------------------------------------------------------

    def list_splits(self) -> list[str]:
        return list(SPLITS)

    def num_tasks(self, split: str) -> int:
        check_split(self._episodes.env.name, split)
        return len(self._episodes.env.tasks(split))

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """Raises IndexError for a number that the split lacks, SettingsError for a split that there is not."""
        if not 0 <= index < (size := self.num_tasks(split)):
            raise IndexError(f"the split {split} has {size} tasks: there is no task {index}")
        task = self._episodes.env.tasks(split)[index]
        return {"id": task.id, "index": index, "split": split, "language": task.language, "level": task.level}

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        numbers = range(*slice(start, stop).indices(self.num_tasks(split)))
        return [self.get_task(split, index) for index in numbers[:MOST_LISTED]]

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        return self.get_task_range(split)


def app(make: Callable[[], TextEnv], split: str, sessions: int) -> FastAPI:
    """The server's application; ``make`` makes the environment of a session. Raises SettingsError."""
    env = make()
    try:
        env.prepare()
        env.reset(options={"split": split})  # what cannot be played is not served
    finally:
        env.close()
    return create_fastapi_app(
        lambda: Session(make(), split), TextAction, TextObservation, max_concurrent_envs=sessions,
        env_name=env.name, state_cls=EpisodeState,
    )  # fmt: skip
