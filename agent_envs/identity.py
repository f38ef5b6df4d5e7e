"""The smallest environment: say the word that is shown. An example for people who add one, and a test of learning.

All a text environment needs is here: settings, a grammar, tasks in disjoint splits, an immutable state, one action, and
an expert with a systematic flaw.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from random import Random
from typing import Any, ClassVar

import numpy as np

from agent_envs.actions import Action, Grammar, Verb, render
from agent_envs.core import Outcome, SettingsError, Task, TaskSet, TextEnv, check_split, number_after


@dataclass(frozen=True)
class IdentityConfig:
    """Settings of the identity environment."""

    words: tuple[str, ...] = ("red", "blue", "green", "white", "black", "gold")
    """The vocabulary."""
    length: int = 3
    """Words shown in an episode, one a turn."""
    skill: float = 0.5
    """Chance that the agent of whom the oracle speaks says a word rightly."""
    max_turns: int = 5
    """Turns after which an unfinished episode is truncated (only invalid actions make it longer than `length`)."""

    def __post_init__(self) -> None:
        if len(set(self.words)) < max(2, len(self.words)) or not all(word.isalnum() for word in self.words):
            raise SettingsError(f"identity: words must be two or more distinct plain words, not {self.words}")
        if self.length < 1 or not 10 <= len(self.words) ** self.length <= 100_000:
            raise SettingsError("identity: len(words) ** length must be from 10 to 100000: change words or length")
        if not 0 < self.skill < 1:
            raise SettingsError(f"identity: skill must lie between 0 and 1, not {self.skill}")
        if self.max_turns < self.length:
            raise SettingsError(f"identity: max_turns must be at least length ({self.length}), not {self.max_turns}")


@dataclass(frozen=True)
class IdentityState:
    """Where an episode stands."""

    shown: int = 0
    """Words answered so far; the next one is on show."""
    right: int = 0
    """How many of them were said rightly."""


class IdentityEnv(TextEnv):
    """Repeat the word that is shown: `SAY(word)`. The reward is the share of right turns, paid turn by turn."""

    name: ClassVar[str] = "identity"
    Config: ClassVar[type[Any]] = IdentityConfig
    config: IdentityConfig
    grammar: ClassVar[Grammar] = Grammar(Verb("SAY", "word"))

    def tasks(self, split: str) -> TaskSet:
        check_split("identity", split)
        words, length = self.config.words, self.config.length
        sequences = _sequences(len(words), length)[split]

        def build(index: int) -> Task:
            shown = tuple(words[sequences[index] // len(words) ** at % len(words)] for at in range(length))
            return Task(f"identity-{split}-{index}", split, _show(shown[0]), data=shown)

        return TaskSet(len(sequences), build, partial(number_after, f"identity-{split}-"))

    def instructions(self, language: str) -> str:
        return "Say the word that is shown."

    def _begin(self, task: Task) -> IdentityState:
        return IdentityState()

    def _copy_state(self, state: IdentityState) -> IdentityState:
        return state

    def _act(self, action: Action) -> Outcome:
        words, state = self.task.data, self._state
        right = action.args.casefold() == words[state.shown].casefold()
        self._state = state = replace(state, shown=state.shown + 1, right=state.right + right)
        over = state.shown == len(words)
        return Outcome("" if over else _show(words[state.shown]), right / len(words), over, state.right == len(words))

    def oracle(self) -> float:
        left, turns = self.config.length - self._state.shown, self.max_turns - self.turn
        return self.config.skill**left if self._state.right == self._state.shown and left <= turns else 0.0

    def _metrics(self, *, over: bool) -> Mapping[str, float]:
        return {"right": self._state.right / self.config.length} if over else {}

    def expert(self, *, flaw: float = 0.0, rng: np.random.Generator | None = None) -> str:
        if flaw > 0 and rng is None:
            raise ValueError("an expert with a flaw needs an rng")
        words = self.config.words
        word = self.task.data[self._state.shown]
        if rng is not None and rng.random() < flaw:  # the systematic mistake: the next word of the list
            word = words[(words.index(word) + 1) % len(words)]
        return render("SAY", word, word)


def _show(word: str) -> str:
    return f"word: {word}"


@lru_cache(maxsize=16)
def _sequences(words: int, length: int) -> dict[str, list[int]]:
    """Split → numbers of word sequences; six tenths to train, two each to valid and test, none in two splits."""
    numbers = list(range(words**length))
    Random("identity").shuffle(numbers)
    cut = len(numbers) // 5
    return {"valid": numbers[:cut], "test": numbers[cut : 2 * cut], "train": numbers[2 * cut :]}
