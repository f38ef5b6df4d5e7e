"""The environment's half of an episode: how it is reset, stepped, limited and checked, whoever plays.

Invariant: whatever an environment answers is an observation with a finite reward and, at the end, a verdict; anything
else is an EnvFault. An episode can be rejoined in a fresh environment by doing again what was done.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from agent_envs.core import PlayableEnv
from agent_envs.isolation.faults import EnvFault, FaultKind, Stage, blamed
from agent_envs.tools import checked
from agents.rollout.settings import ReActSettings
from agents.tree import Node
from agents.tree.episode import Episode, Job

EMPTY = "Tool({}) returned empty output."
CALL_LIMIT = "The limit of calls was reached."
"""For the record; the agent, whose episode has ended, does not read it."""
MOST_REWARD = 3.4028234663852886e38
"""The largest float32: returns and losses are computed from rewards of that type."""


@dataclass(frozen=True)
class ThoughtTurns:
    """What an environment says whose turns are thought factors."""

    opening: str
    """How the model's message begins."""
    turns: int
    """Turns it allows."""

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> ThoughtTurns | None:
        """None where turns are messages of their own. Raises EnvFault."""
        match info.get("thoughts"):
            case None:
                return None
            case {"opening": str() as opening, "turns": int() as turns} if turns >= 1:
                return cls(opening, turns)
        raise EnvFault(FaultKind.GARBAGE, Stage.RESET, "reset must tell the opening and the turns of thoughts")


def tools_in(info: Mapping[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """(system prompt, tools) of an environment whose actions are called. Raises EnvFault."""
    try:
        tools = checked(info.get("tools"))
    except ValueError as error:
        raise EnvFault(FaultKind.GARBAGE, Stage.RESET, str(error)) from None
    if not isinstance(system := info.get("instructions"), str):
        raise EnvFault(FaultKind.GARBAGE, Stage.RESET, "reset must tell the instructions beside the tools")
    return system, tools


class EnvHalf:
    """Resets and steps the environment of one episode. Its methods raise EnvFault when the environment breaks; the
    player is then of no further use, except to `rejoin`."""

    def __init__(self, env: PlayableEnv, job: Job, settings: ReActSettings, *, calls: bool) -> None:
        self.env, self.job, self.settings, self.calls = env, job, settings, calls
        self.tools: Sequence[dict[str, Any]] = ()
        """What the model may call; nothing where actions are texts (``calls`` is False)."""
        self.thoughts: ThoughtTurns | None = None
        self.episode: Episode

    def reset(self) -> tuple[str, str, dict[str, Any]]:
        # Every sample of a task begins in the same state: the environment's seed does not depend on the sample.
        seed = Job(self.job.task, 0, self.job.run_seed).seed("env") & 0x7FFFFFFF
        with blamed(Stage.RESET):
            options = {"task": self.job.task} | ({"oracle": True} if self.settings.oracle else {})
            options |= {"tools": True} if self.calls else {}
            user, info = self.env.reset(seed=seed, options=options)
            return self.env.system_prompt(), user, info

    def rejoin(self, env: PlayableEnv) -> None:
        """Brings a fresh ``env`` to the state of this episode, by doing again what was done. Raises EnvFault."""
        self.env = env
        self.reset()
        self.redo()

    def redo(self) -> None:
        """Does again, in an environment that was reset, what was done in the episode. Raises EnvFault."""
        for done, (text, seen) in enumerate(self.episode.texts):
            observation = self._step(text, done)[0]
            if observation != seen:
                raise EnvFault(FaultKind.GARBAGE, Stage.STEP, f"asked again, it answered {text!r:.80} otherwise")

    def _step(self, text: str, done: int) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """The environment's answer to the action after ``done`` others, as the agent gets it."""
        with blamed(Stage.STEP):
            observation, reward, terminated, truncated, info = self.env.step(text)
        check_answer(reward, info, over=terminated or truncated)
        if terminated or truncated:
            return observation, reward, terminated, truncated, info
        if self.settings.call_limit and done >= self.settings.call_limit:
            # Only now it is known that the action was not an answer. It is neither paid nor shown.
            ended = {**info, "success": False} | ({"oracle": 0.0} if "oracle" in info else {})
            return CALL_LIMIT, 0.0, False, True, ended
        if self.settings.name_empty and not observation and self.thoughts is None:
            observation = EMPTY.format(info.get("action") or "action")
        return observation, reward, terminated, truncated, info

    def _record(self, action: Node, state: Node, text: str, observation: str, info: Mapping[str, Any]) -> None:
        """Adds a turn to the episode."""
        episode, action.invalid = self.episode, bool(info.get("invalid"))
        episode.turns.append((action, state))
        episode.texts.append((text, observation))
        episode.invalid += action.invalid
        episode.errors += info.get("error") is not None
        episode.metrics = dict(info.get("metrics", {}))


def anchor(observation: str) -> str:
    """Identity of an observation; an empty one, which every state may have, is like no other and has none."""
    return observation and blake2b(observation.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def check_answer(reward: float, info: Mapping[str, Any], *, over: bool) -> None:
    """Raises EnvFault for a reward that is no finite float32, and for an end without a verdict or plain metrics."""
    metrics = info.get("metrics", {})
    if not abs(reward) <= MOST_REWARD:
        problem = f"the reward {reward} is not a finite float32"
    elif over and type(info.get("success")) is not bool:
        problem = f"info['success'] must be True or False at the end, not {info.get('success')!r:.80}"
    elif not (isinstance(metrics, Mapping) and all(map(_is_metric, metrics.items()))):
        problem = f"info['metrics'] must hold finite numbers by name, not {metrics!r:.80}"
    else:
        return
    raise EnvFault(FaultKind.GARBAGE, Stage.STEP, problem)


def _is_metric(item: tuple[Any, Any]) -> bool:
    name, value = item
    return isinstance(name, str) and isinstance(value, int | float) and abs(value) <= sys.float_info.max


def oracle_of(info: Mapping[str, Any]) -> float | None:
    """The oracle's number, which must be one."""
    value = info.get("oracle")
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
