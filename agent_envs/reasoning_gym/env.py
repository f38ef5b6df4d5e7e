"""Tasks of reasoning-gym (extra `reasoning-gym`) as puzzles with one answer: first drafts, as many as there are turns
for, then one answer, which the data set's own scorer judges.

Invariants: only full marks are a success (scorers pay small change for wrong answers); an answer that is not the data
set's own, to the letter, is scored in a process that may be killed, since some scorers evaluate it; one that cannot be
scored is not right, and counted as unverified. A question is in one split only, by its own hash.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from agent_envs.actions import Action, ActionError, Grammar, render
from agent_envs.core import SPLITS, Outcome, Task, TaskSet, TextEnv
from agent_envs.reasoning_gym.config import ReasoningGymConfig
from agent_envs.reasoning_gym.reward import right
from agent_envs.reasoning_gym.tasks import GRAMMAR, LONGEST, NEWLINE, read, tasks_of, write


@dataclass(frozen=True)
class ReasoningGymState:
    """Where an episode stands."""

    drafts: int = 0
    unverified: bool = False
    """Whether the answer could not be scored."""


class ReasoningGymEnv(TextEnv):
    """Solve a task of reasoning-gym: think in drafts, then answer once. The reward is 1 for full marks."""

    name: ClassVar[str] = "reasoning_gym"
    Config: ClassVar[type[Any]] = ReasoningGymConfig
    config: ReasoningGymConfig
    grammar: ClassVar[Grammar] = GRAMMAR

    def tasks(self, split: str) -> TaskSet:
        return tasks_of(self.config, split)

    def prepare(self) -> None:
        for split in SPLITS:
            _ = self.tasks(split)[0]

    def instructions(self, language: str) -> str:
        return f"Solve the task. You may write drafts before you submit one answer. A new line is written {NEWLINE}."

    def _begin(self, task: Task) -> ReasoningGymState:
        return ReasoningGymState()

    def _copy_state(self, state: ReasoningGymState) -> ReasoningGymState:
        return state

    @property
    def task_turns(self) -> int:
        return self.config.turns

    def _act(self, action: Action) -> Outcome:
        left, state = self.task_turns - self.turn, self._state
        if action.name == "DRAFT":
            self._state = ReasoningGymState(state.drafts + 1)
            return Outcome(f"noted, {left} {'turn' if left == 1 else 'turns'} left")
        if len(action.args) > LONGEST:
            raise ActionError(f"an answer has at most {LONGEST} characters", f"答案最多 {LONGEST} 个字符")
        verdict = right(self.config, self.task.data, read(action.args))
        self._state = ReasoningGymState(state.drafts, unverified=verdict is None)
        return Outcome("", float(verdict is True), terminated=True, success=verdict is True)

    def _metrics(self, *, over: bool) -> Mapping[str, float]:
        return {"drafts": float(self._state.drafts), "unverified": float(self._state.unverified)} if over else {}

    def expert(self, *, flaw: float = 0.0, rng: np.random.Generator | None = None) -> str:
        if flaw > 0 and rng is None:
            raise ValueError("an expert with a flaw needs an rng")
        answer = self.task.data.answer
        if rng is not None and rng.random() < flaw:
            answer = spoiled(answer)
        return render("SUBMIT", write(answer))


def spoiled(answer: str) -> str:
    """The flawed demonstrator's answer: the last digit one too high, or else the last character missing."""
    at = max((at for at, char in enumerate(answer) if char in "0123456789"), default=None)
    if at is None:
        return answer[:-1] or "?"
    return f"{answer[:at]}{(int(answer[at]) + 1) % 10}{answer[at + 1 :]}"
