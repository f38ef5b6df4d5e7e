"""Tasks of reasoning-gym: entries of its data sets, each question in one split only, by its own hash."""

import difflib
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType

from agent_envs.actions import ActionError, Grammar, Verb, render
from agent_envs.core import SettingsError, Task, TaskSet, check_split, number_after
from agent_envs.reasoning_gym.config import ReasoningGymConfig
from agent_envs.splits import MORE_TESTS, hashed_split

GRAMMAR = Grammar(Verb("DRAFT", "notes"), Verb("SUBMIT", "answer"))
LONGEST = 8000
"""Characters of an answer that is looked at."""
NEWLINE = "\\n"


@dataclass(frozen=True)
class Entry:
    """A task's payload."""

    number: int
    """Which entry of the data set it is."""
    question: str
    """Digest of its question."""
    answer: str
    """The data set's own answer."""


def tasks_of(config: ReasoningGymConfig, split: str) -> TaskSet:
    """The tasks of a split."""
    check_split("reasoning_gym", split)
    name = f"{config.dataset}-{split}-"
    size = config.train_tasks if split == "train" else config.held_out_tasks
    return TaskSet(size, lambda at: _made(config, split, at), lambda task_id: number_after(name, task_id))


def write(answer: str) -> str:
    """An answer as the argument of an action, which is one line."""
    return answer.replace("\n", NEWLINE)


def read(argument: str) -> str:
    """The answer that an argument stands for."""
    return argument.replace(NEWLINE, "\n")


def _library(dataset: str) -> ModuleType:
    from agent_envs.reasoning_gym import entries as data

    data.check_stable(dataset, "reasoning_gym")
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
        if hashed_split(question, MORE_TESTS) == split and isinstance(answer, str) and _can_be_said(answer):
            payload = Entry(number, data.digest(question), answer)
            return Task(f"{config.dataset}-{split}-{index}", split, question, data=payload)
    raise SettingsError(
        f"reasoning_gym: of {data.BLOCK} entries of {config.dataset} none is a {split} task with an answer of its own "
        "that can be written as an action: choose another dataset"
    )


def _can_be_said(answer: str) -> bool:
    if not 0 < len(answer) <= LONGEST:
        return False
    try:
        return read(GRAMMAR.parse(render("SUBMIT", write(answer))).args) == answer
    except ActionError:
        return False
