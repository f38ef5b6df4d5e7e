"""The smallest environment: say the word that is shown.

All a text environment needs is in this folder: settings, a grammar, tasks in disjoint splits, an immutable state, one
action, a reward, and an expert with a systematic flaw.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from agent_envs.actions import Action, Grammar, Verb, render
from agent_envs.core import Outcome, Task, TaskSet, TextEnv
from agent_envs.identity.config import IdentityConfig
from agent_envs.identity.reward import chance, reward
from agent_envs.identity.tasks import show, tasks_of


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
        return tasks_of(self.config, split)

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
        paid = reward(right, len(words))
        return Outcome("" if over else show(words[state.shown]), paid, over, state.right == len(words))

    def oracle(self) -> float:
        left, turns = self.config.length - self._state.shown, self.max_turns - self.turn
        return chance(left, turns, self.config.skill, flawless=self._state.right == self._state.shown)

    def _metrics(self, *, over: bool) -> Mapping[str, float]:
        return {"right": self._state.right / self.config.length} if over else {}

    def valid_turns(self) -> Sequence[str]:
        return [render("SAY", word) for word in self.config.words]

    def expert(self, *, flaw: float = 0.0, rng: np.random.Generator | None = None) -> str:
        if flaw > 0 and rng is None:
            raise ValueError("an expert with a flaw needs an rng")
        words = self.config.words
        word = self.task.data[self._state.shown]
        if rng is not None and rng.random() < flaw:  # the systematic mistake: the next word of the list
            word = words[(words.index(word) + 1) % len(words)]
        return render("SAY", word, word)
