"""A corridor of doors: many small decisions, one reward at the end. It shows who finds out which decisions counted.

Every door bears a sign, and every sign belongs to one of a few handles; which one is a fact of the corridor's world
that nobody tells. The right handle leads on, a wrong one leads back a door: mistakes cost turns and can be made good.
Doors without a sign open by any handle: what is done there does not matter. Success is to arrive before the pulls run
out; how many are left is shown, so to run out of them is a failure and not a cut: the episode terminates.

The chance of success of an agent that is right at a signed door with probability `skill` is known exactly, from every
state (`CorridorEnv.oracle`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product
from random import Random
from typing import Any, ClassVar

import numpy as np

from agent_envs.actions import Action, ActionError, Grammar, Verb, render
from agent_envs.core import Outcome, SettingsError, Task, TaskSet, TextEnv, check_split, number_after

Signs = tuple[str, ...]
"""The sign of each door of a corridor; "" where there is none."""


@dataclass(frozen=True)
class CorridorConfig:
    """Settings of the corridor."""

    doors: int = 12
    """Doors from the beginning to the end."""
    pulls: int = 26
    """Pulls within which the end must be reached."""
    max_turns: int = 40
    """Turns after which an episode is cut; only turns that are no pull make it longer than `pulls`."""
    signs: int = 96
    """Different signs. The more there are, the more seldom each one is met, and the more there is to find out."""
    handles: tuple[str, ...] = ("red", "blue", "green", "white")
    """What can be pulled at a door."""
    blank: float = 0.3
    """Share of the doors without a sign."""
    world: int = 0
    """Which handle each sign belongs to is drawn from this number."""
    skill: float = 0.6
    """Chance that the agent of whom the oracle speaks pulls the right handle at a signed door."""
    train_tasks: int = 20000
    """Corridors to learn from; validation and test have 1000 others each."""

    def __post_init__(self) -> None:
        if len(set(self.handles)) < max(2, len(self.handles)) or not all(h.isalpha() for h in self.handles):
            raise SettingsError(f"corridor: handles must be two or more distinct plain words, not {self.handles}")
        if not 1 <= self.doors <= self.pulls <= self.max_turns:
            raise SettingsError(
                "corridor: doors, pulls and max_turns must be at least 1 and none less than the one before, "
                f"not {self.doors}, {self.pulls} and {self.max_turns}"
            )
        if not len(self.handles) <= self.signs <= len(_WORDS):
            raise SettingsError(f"corridor: signs must lie between the number of handles and {len(_WORDS)}")
        if self.signs**self.doors < 1000:
            raise SettingsError("corridor: signs ** doors must be at least 1000: raise signs or doors")
        if not 0 <= self.blank < 1 or not 0 < self.skill < 1:
            raise SettingsError("corridor: blank must lie in 0..1 and skill between 0 and 1, both below 1")
        if self.train_tasks < 1:
            raise SettingsError(f"corridor: train_tasks must be at least 1, not {self.train_tasks}")


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
        check_split("corridor", split)
        config = self.config

        def build(index: int) -> Task:
            signs = _corridor(config, split, index)
            return Task(f"corridor-{split}-{index}", split, _show(config, signs, 0, config.pulls), data=signs)

        return TaskSet(
            config.train_tasks if split == "train" else 1000, build, partial(number_after, f"corridor-{split}-")
        )

    def instructions(self, language: str) -> str:
        return f"Walk to the end of the corridor. A sign tells which handle opens: {', '.join(self.config.handles)}."

    def lexicon(self) -> Sequence[str]:
        return _WORDS[: self.config.signs]

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
        if not sign or handle == right_handle(config, sign):
            state = replace(state, door=state.door + 1, left=state.left - 1)
        else:
            state = replace(state, door=max(0, state.door - 1), left=state.left - 1, back=state.back + 1)
        self._state, arrived = state, state.door == config.doors
        if arrived or not state.left:
            return Outcome("", float(arrived), terminated=True, success=arrived)
        return Outcome(_show(config, signs, state.door, state.left))

    def _metrics(self, *, over: bool) -> dict[str, float]:
        return {"doors": self._state.door / self.config.doors, "back": float(self._state.back)} if over else {}

    def oracle(self) -> float:
        config = self.config
        blank = tuple(not sign for sign in self.task.data)
        left = min(self._state.left, config.max_turns - self.turn)
        return float(chances(blank, config.pulls, config.skill)[left, self._state.door])

    def expert(self, *, flaw: float = 0.0, rng: np.random.Generator | None = None) -> str:
        if flaw > 0 and rng is None:
            raise ValueError("an expert with a flaw needs an rng")
        config, sign = self.config, self.task.data[self._state.door]
        if not sign:
            handle = config.handles[0] if rng is None else config.handles[int(rng.integers(len(config.handles)))]
        else:
            wrong = rng is not None and rng.random() < flaw
            handle = (mistaken_handle if wrong else right_handle)(config, sign)
        return render("PULL", handle)


def right_handle(config: CorridorConfig, sign: str) -> str:
    """The handle that a sign belongs to."""
    return config.handles[_world(config)[sign][0]]


def mistaken_handle(config: CorridorConfig, sign: str) -> str:
    """The handle that the flawed demonstrator takes a sign for: each sign has its own mistake."""
    return config.handles[_world(config)[sign][1]]


@lru_cache(maxsize=64)
def _world(config: CorridorConfig) -> dict[str, tuple[int, int]]:
    rng, n = Random(f"corridor-{config.world}"), len(config.handles)
    pairs = [(right, wrong) for right, wrong in product(range(n), range(n)) if right != wrong]
    return {sign: rng.choice(pairs) for sign in _WORDS[: config.signs]}


@lru_cache(maxsize=4096)
def chances(blank: tuple[bool, ...], pulls: int, skill: float) -> np.ndarray:
    """Chance to arrive, by (pulls left, door): rows 0..pulls, columns 0..doors.

    V(t, d) = V(t - 1, d + 1) at a door without a sign, and elsewhere
    V(t, d) = skill V(t - 1, d + 1) + (1 - skill) V(t - 1, max(d - 1, 0)).
    """
    doors = len(blank)
    on = np.where(blank, 1.0, skill)
    chance = np.zeros((pulls + 1, doors + 1))
    chance[:, doors] = 1.0
    for t in range(1, pulls + 1):
        before = chance[t - 1, np.maximum(np.arange(doors) - 1, 0)]
        chance[t, :doors] = on * chance[t - 1, 1:] + (1 - on) * before
    chance.setflags(write=False)
    return chance


def _corridor(config: CorridorConfig, split: str, index: int) -> Signs:
    """The signs of one task. A corridor is in one split only: its own hash decides in which, three to train in five."""
    rng = Random(f"corridor-{config.world}-{split}-{index}")
    while True:
        signs = tuple(
            "" if rng.random() < config.blank else _WORDS[rng.randrange(config.signs)] for _ in range(config.doors)
        )
        place = Random("|".join(signs)).randrange(5)
        if split == ("valid", "test", "train", "train", "train")[place]:
            return signs


def _show(config: CorridorConfig, signs: Signs, door: int, left: int) -> str:
    sign = f"sign: {signs[door]}" if signs[door] else "no sign"
    return f"{sign}, door {door + 1} of {config.doors}, {left} pulls left"


_WORDS: tuple[str, ...] = tuple("".join(parts) for parts in product("bdfgklmnprst", "aeiou", ("lm", "nd", "rk", "st")))
"""What signs say: 240 short words that mean nothing."""
