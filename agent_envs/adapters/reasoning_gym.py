"""Tasks of reasoning-gym (extra `reasoning-gym`) as puzzles with one answer: first drafts, as many as there are turns
for, then one answer, which the data set's own scorer judges.

Invariants: only full marks are a success (scorers pay small change for wrong answers); an answer that is not the data
set's own, to the letter, is scored in a process that may be killed, since some scorers evaluate it; one that cannot be
scored is not right, and counted as unverified. A question is in one split only, by its own hash.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from agent_envs.actions import Action, ActionError, Grammar, Verb, render
from agent_envs.core import SPLITS, Outcome, SettingsError, Task, TaskSet, TextEnv, check_split, number_after
from agent_envs.isolation.grader import Limits, shared
from agent_envs.puzzle.tasks import split_of

if TYPE_CHECKING:
    from types import ModuleType

_LONGEST = 8000
"""Characters of an answer that is looked at."""
_NEWLINE = "\\n"


@dataclass(frozen=True)
class ReasoningGymConfig:
    """Settings of reasoning-gym's tasks."""

    dataset: str = "chain_sum"
    """A data set of reasoning-gym, by its name there."""
    seed: int = 0
    """Seed of the tasks."""
    train_tasks: int = 1000
    """Tasks to learn from; those of small data sets repeat."""
    held_out_tasks: int = 200
    """Tasks to validate, and as many to test."""
    turns: int = 6
    """Turns within which the answer must be given."""
    max_turns: int = 12
    """No episode has more turns: more `turns` are refused."""
    score_seconds: int = 2
    """Computing time for the scoring of one answer."""

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise SettingsError(f"reasoning_gym: seed must not be negative, not {self.seed}")
        for name in ("train_tasks", "held_out_tasks", "turns", "score_seconds"):
            if getattr(self, name) < 1:
                raise SettingsError(f"reasoning_gym: {name} must be at least 1, not {getattr(self, name)}")
        if self.max_turns < self.turns:
            raise SettingsError(f"reasoning_gym: max_turns must be at least turns ({self.turns}), not {self.max_turns}")


@dataclass(frozen=True)
class Entry:
    """A task's payload."""

    number: int
    """Which entry of the data set it is."""
    question: str
    """Digest of its question."""
    answer: str
    """The data set's own answer."""


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
    grammar: ClassVar[Grammar] = Grammar(Verb("DRAFT", "notes"), Verb("SUBMIT", "answer"))

    def tasks(self, split: str) -> TaskSet:
        check_split(self.name, split)
        config, name = self.config, f"{self.config.dataset}-{split}-"
        size = config.train_tasks if split == "train" else config.held_out_tasks
        return TaskSet(size, lambda at: _made(config, split, at), lambda task_id: number_after(name, task_id))

    def prepare(self) -> None:
        for split in SPLITS:
            _ = self.tasks(split)[0]

    def instructions(self, language: str) -> str:
        return f"Solve the task. You may write drafts before you submit one answer. A new line is written {_NEWLINE}."

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
        if len(action.args) > _LONGEST:
            raise ActionError(f"an answer has at most {_LONGEST} characters", f"答案最多 {_LONGEST} 个字符")
        right = self._right(read(action.args))
        self._state = ReasoningGymState(state.drafts, unverified=right is None)
        return Outcome("", float(right is True), terminated=True, success=right is True)

    def _right(self, answer: str) -> bool | None:
        """Whether an answer gets full marks; None when nobody can tell."""
        task, config = self.task.data, self.config
        if answer == task.answer:
            return True
        limits = Limits(cpu_seconds=config.score_seconds, seconds=max(60.0, 10.0 * config.score_seconds))
        scorer = shared("agent_envs.adapters.reasoning_gym_judge:score", limits)
        reply = scorer.call(config.dataset, config.seed, task.number, task.question, answer)
        return reply.value >= 1 if type(reply.value) is float else None

    def _metrics(self, *, over: bool) -> Mapping[str, float]:
        return {"drafts": float(self._state.drafts), "unverified": float(self._state.unverified)} if over else {}

    def expert(self, *, flaw: float = 0.0, rng: np.random.Generator | None = None) -> str:
        if flaw > 0 and rng is None:
            raise ValueError("an expert with a flaw needs an rng")
        answer = self.task.data.answer
        if rng is not None and rng.random() < flaw:
            answer = spoiled(answer)
        return render("SUBMIT", write(answer))


def write(answer: str) -> str:
    """An answer as the argument of an action, which is one line."""
    return answer.replace("\n", _NEWLINE)


def read(argument: str) -> str:
    """The answer that an argument stands for."""
    return argument.replace(_NEWLINE, "\n")


def spoiled(answer: str) -> str:
    """The flawed demonstrator's answer: the last digit one too high, or else the last character missing."""
    at = max((at for at, char in enumerate(answer) if char in "0123456789"), default=None)
    if at is None:
        return answer[:-1] or "?"
    return f"{answer[:at]}{(int(answer[at]) + 1) % 10}{answer[at + 1 :]}"


def _library(dataset: str) -> ModuleType:
    from agent_envs.adapters import reasoning_gym_data as data

    known = data.names()
    if dataset not in known:
        close = difflib.get_close_matches(dataset, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise SettingsError(f"reasoning_gym: no data set {dataset!r}{hint} (known: {', '.join(known)})")
    return data


@lru_cache(maxsize=1 << 14)
def _made(config: ReasoningGymConfig, split: str, index: int) -> Task:
    """Task `index` of a split: the first of the entries of that block that belongs to the split.

    Entries whose answer is missing, or cannot be written as an action, are left out.
    """
    data = _library(config.dataset)
    for number in range(data.BLOCK * index, data.BLOCK * (index + 1)):
        made = data.entry(config.dataset, config.seed, number)
        question, answer = made["question"], made["answer"]
        if split_of(question) == split and isinstance(answer, str) and _can_be_said(answer):
            payload = Entry(number, data.digest(question), answer)
            return Task(f"{config.dataset}-{split}-{index}", split, question, data=payload)
    raise SettingsError(
        f"reasoning_gym: of {data.BLOCK} entries of {config.dataset} none is a {split} task with an answer of its own "
        "that can be written as an action: choose another dataset"
    )


def _can_be_said(answer: str) -> bool:
    if not 0 < len(answer) <= _LONGEST:
        return False
    try:
        return read(ReasoningGymEnv.grammar.parse(render("SUBMIT", write(answer))).args) == answer
    except ActionError:
        return False
