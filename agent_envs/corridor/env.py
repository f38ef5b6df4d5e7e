"""A corridor of doors: many small decisions, one reward at the end. It shows who finds out which decisions counted.

Every door bears a sign, and every sign belongs to one of a few handles; which one is a fact of the corridor's world
that nobody tells. The right handle leads on, a wrong one leads back a door: mistakes cost turns and can be made good.
Doors without a sign open by any handle: what is done there does not matter. Success is to arrive before the pulls run
out; how many are left is shown, so to run out of them is a failure and not a cut: the episode terminates.

The chance of success of an agent that is right at a signed door with probability `skill` is known exactly, from every
state (`CorridorEnv.oracle`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from agent_envs.actions import Action, ActionError, Grammar, Verb, render
from agent_envs.core import Outcome, Task, TaskSet, TextEnv
from agent_envs.corridor.config import WORDS, CorridorConfig
from agent_envs.corridor.reward import chances, reward
from agent_envs.corridor.tasks import handles_of, show, tasks_of


@dataclass(frozen=True)
class CorridorState:
    """Where an episode stands."""

    door: int = 0
    """Doors behind the agent; the next one is before it."""
    left: int = 0
    """Pulls left."""
    back: int = 0
    """How often it was led back."""


class CorridorEnv(TextEnv):
    """Walk to the end of a corridor: `PULL(handle)`. The reward is 1 on arrival, and nothing before."""

    name: ClassVar[str] = "corridor"
    Config: ClassVar[type[Any]] = CorridorConfig
    config: CorridorConfig
    grammar: ClassVar[Grammar] = Grammar(Verb("PULL", "handle"))

    def tasks(self, split: str) -> TaskSet:
        return tasks_of(self.config, split)

    def instructions(self, language: str) -> str:
        return f"Walk to the end of the corridor. A sign tells which handle opens: {', '.join(self.config.handles)}."

    def lexicon(self) -> Sequence[str]:
        return WORDS[: self.config.signs]

    def _begin(self, task: Task) -> CorridorState:
        return CorridorState(left=self.config.pulls)

    def _copy_state(self, state: CorridorState) -> CorridorState:
        return state

    def _act(self, action: Action) -> Outcome:
        config, state, signs = self.config, self._state, self.task.data
        handle = action.args.casefold()
        if handle not in config.handles:
            there = ", ".join(config.handles)
            raise ActionError(f"there is no such handle; there are {there}", f"没有这个把手；有 {there}")
        sign = signs[state.door]
        if not sign or handle == handles_of(config)[sign][0]:
            state = replace(state, door=state.door + 1, left=state.left - 1)
        else:
            state = replace(state, door=max(0, state.door - 1), left=state.left - 1, back=state.back + 1)
        self._state, arrived = state, state.door == config.doors
        if arrived or not state.left:
            return Outcome("", reward(arrived), terminated=True, success=arrived)
        return Outcome(show(config, signs, state.door, state.left))

    def _metrics(self, *, over: bool) -> dict[str, float]:
        return {"doors": self._state.door / self.config.doors, "back": float(self._state.back)} if over else {}

    def oracle(self) -> float:
        config = self.config
        blank = tuple(not sign for sign in self.task.data)
        left = min(self._state.left, config.max_turns - self.turn)
        return float(chances(blank, config.pulls, config.skill)[left, self._state.door])

    def valid_turns(self) -> Sequence[str]:
        return [render("PULL", handle) for handle in self.config.handles]

    def expert(self, *, flaw: float = 0.0, rng: np.random.Generator | None = None) -> str:
        if flaw > 0 and rng is None:
            raise ValueError("an expert with a flaw needs an rng")
        config, sign = self.config, self.task.data[self._state.door]
        if not sign:
            handle = config.handles[0] if rng is None else config.handles[int(rng.integers(len(config.handles)))]
        else:
            wrong = rng is not None and rng.random() < flaw
            handle = handles_of(config)[sign][wrong]
        return render("PULL", handle)
