"""Tasks from files in the manner of HumanEval, MBPP and EvalPlus.

Invariants: no text is in two splits (`agent_envs.splits`). A task that is graded on the host is graded by all checks of
its source, or is left out, and the user is told how many were, and why. Nothing of a file runs outside the sandbox.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from agent_envs.code.judge import evaluate
from agent_envs.code.prompt import prompt_of
from agent_envs.code.sandbox import Sandbox
from agent_envs.code.sandbox.choose import shared_sandbox
from agent_envs.code.task import Case, CodeTask
from agent_envs.code.tasks.asserts import plain
from agent_envs.code.tasks.known import Known, read
from agent_envs.code.tasks.settings import Grader, TaskSettings
from agent_envs.code.values import decode
from agent_envs.core import SettingsError, Task
from agent_envs.rows import Row, parts_of, rows_of
from agent_envs.splits import Wanted, tasks_by_split

_MOST_SEEN = 2
_SECONDS, _MEMORY_MB = 1.0, 256
_TOGETHER = 16
"""Calls of a solution that share a process and its deadline."""
_WANTED = {"en": "Write main.py.", "zh": "写出 main.py。"}


@dataclass
class _Told:
    """What the user is told of what could not be used."""

    tasks: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    """Reason → tasks."""
    programs: int = 0
    """Tasks graded by their own program."""
    inputs: int = 0
    """Inputs of EvalPlus that were not used."""

    def log(self, source: str) -> None:
        logger = logging.getLogger(__name__)
        if self.left_out:
            common = "; ".join(f"{reason} ({count})" for reason, count in self.left_out.most_common(3))
            logger.warning(
                "code: %s: %d of %d tasks are left out, their checks cannot be made on the host: %s. "
                "--code.grader in-process has them, with verdicts that a submission can forge",
                source, self.left_out.total(), self.tasks, common,
            )  # fmt: skip
        if self.programs:
            logger.warning("code: %s: %d of %d tasks run their own test", source, self.programs, self.tasks)
        if self.inputs:
            logger.warning("code: %s: %d inputs are not used: too many, too long, or no result", source, self.inputs)


def load(config: TaskSettings, sandbox: str) -> dict[str, tuple[Task, ...]]:
    """Tasks by split; ``sandbox`` names the one that solutions run in. Raises SettingsError."""
    wanted = Wanted("code", config.languages, config.train_tasks, config.held_out_tasks)
    return _load(config.source, config.grader, wanted, sandbox)


@lru_cache(maxsize=8)
def _load(source: str, grader: Grader, wanted: Wanted, sandbox: str) -> dict[str, tuple[Task, ...]]:
    told = _Told()

    def make(name: str, split: str, language: str, known: Known) -> Task | None:
        told.tasks += 1
        task = _task(known, language, grader, sandbox, told)
        return None if task is None else Task(name, split, prompt_of(task, language), language, 1, task)

    parts = {part: rows_of(file) for part, file in _files(source).items()}
    tasks = tasks_by_split(wanted, parts, _read, make)
    told.log(source)
    if not any(tasks.values()):
        reason = f"; {told.left_out.most_common(1)[0][0]}" if told.left_out else ""
        raise SettingsError(f"code: {source} holds no task that can be used{reason}")
    return tasks


def _files(source: str) -> dict[str, Path]:
    files = parts_of(source)
    if files:
        return files
    if Path(source).expanduser().is_dir():
        raise SettingsError(f"code: {source} holds none of train.jsonl, valid.jsonl and test.jsonl")
    raise SettingsError(
        f"code: no source {source!r}: use generated, a .jsonl or .jsonl.gz file, or a folder with some of "
        "train.jsonl, valid.jsonl and test.jsonl"
    )


def _read(row: Row, where: str) -> tuple[str, Known]:
    known = read(row, where)
    return known.text, known


def _task(known: Known, language: str, grader: Grader, sandbox: str, told: _Told) -> CodeTask | None:
    statement = f"{_WANTED[language]}\n{known.text}"
    files, solution = {"main.py": known.start}, {"main.py": known.solution}
    reasons, cases = known.checks.unsupported, known.checks.cases
    if known.calls:
        cases = _solved(known, shared_sandbox(sandbox))
        told.inputs += known.left_out + len(known.calls) - len(cases)
    if not cases and not reasons:
        reasons = ["no checks, or none that the source's own solution passes"]
    if not reasons:
        seen = min(_MOST_SEEN, len(cases) // 3)
        return CodeTask(statement, files, tuple(cases[:seen]), tuple(cases[seen:]), solution)
    if grader is Grader.IN_PROCESS and known.grader:
        told.programs += 1
        return CodeTask(statement, files, (), (), solution, known.grader)
    told.left_out[reasons[0]] += 1
    return None


def _solved(known: Known, sandbox: Sandbox) -> list[Case]:
    """The calls with what the source's own solution gives for them; those without a plain result are left out."""
    files = {"main.py": known.solution}
    result = []
    for start in range(0, len(known.calls), _TOGETHER):
        calls = known.calls[start : start + _TOGETHER]
        said = list(evaluate(sandbox, files, [("main", call) for call in calls], _SECONDS, _MEMORY_MB))
        for number, text in enumerate(said):
            if text[:1] == ".":  # it ran out of time: which tasks there are should not hang on how busy the machine is
                said[number] = evaluate(sandbox, files, [("main", calls[number])], 2 * _SECONDS, _MEMORY_MB)[0]
        result += [case for call, text in zip(calls, said, strict=True) if (case := _case(call, text, known.tolerance))]
    return result


def _case(call: str, said: str, tolerance: float) -> Case | None:
    """The check that a call gives what the judge's driver said of it; None where that is no plain value."""
    try:
        value = decode(said[1:]) if said[:1] == "=" else ...
    except ValueError:
        return None
    return Case("main", call, value, tolerance if _floats(value) else 0.0) if plain(value) else None


def _floats(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_floats, value.values()))
    return any(map(_floats, value)) if isinstance(value, list | tuple) else isinstance(value, float)
