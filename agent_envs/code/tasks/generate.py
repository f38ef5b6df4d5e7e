"""Generated tasks: programs of the library, with bugs or emptied.

Invariants: a program, and all that it is built on, is in one split only; task i is the same whenever it is asked for;
and of a repair's checks one that is seen and one that pays fails at the beginning.

Nothing of a bug is run here: which checks it fails is on the list (`agent_envs.code.tasks.bugs`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, zip_longest
from random import Random

from agent_envs.code.prompt import prompt_of
from agent_envs.code.task import Case, CodeTask
from agent_envs.code.tasks.bugs import Bug, bugs_of, operators_of
from agent_envs.code.tasks.catalogue import Program, programs
from agent_envs.code.tasks.settings import Operator, TaskKind, TaskSettings
from agent_envs.code.tasks.stub import stub
from agent_envs.core import SettingsError, Task, TaskSet, number_after

VISIBLE, HIDDEN = 3, 10
_LEVELS = {1: (6, 8), 2: (16, 19)}
"""Number of files (2: several) → most lines of a program of level 1 and of level 2."""
_WANTED = {
    "en": {
        TaskKind.REPAIR: "Repair main.py: it has one mistake.",
        TaskKind.SYNTHESIS: "Write main.py.",
        TaskKind.MULTI: "Repair the files: one or two of them have a mistake.",
    },
    "zh": {
        TaskKind.REPAIR: "修复 main.py：其中有一处错误。",
        TaskKind.SYNTHESIS: "写出 main.py。",
        TaskKind.MULTI: "修复这些文件：其中一个或两个有错误。",
    },
}


def generate(config: TaskSettings, split: str) -> TaskSet:
    """The tasks of a split, every program equally often. Raises SettingsError when no program has the settings."""
    names = _order(config.kind, config.operators, config.levels, config.seed, split)
    if not names:
        raise SettingsError(
            f"code: no {config.kind} program of the {split} split has a level of {config.chosen_levels} and a bug of "
            f"{', '.join(config.chosen_operators)}: allow more of them"
        )
    prefix = f"code-{config.kind}-{split}-"

    def build(index: int) -> Task:
        return _build(config, split, names, index, f"{prefix}{index}")

    size = config.train_tasks if split == "train" else config.held_out_tasks
    return TaskSet(size, build, lambda task_id: number_after(prefix, task_id))


def level_of(program: Program) -> int:
    """1 to 3, by the number of lines."""
    low, high = _LEVELS[min(2, len(program.files))]
    return 1 + (program.lines > low) + (program.lines > high)


def statement(program: Program, kind: TaskKind, language: str) -> str:
    """What is wanted, and what each file should do."""
    colon = "：" if language == "zh" else ": "
    rows = [_WANTED[language][kind]]
    for name, signature in program.signatures.items():
        where = "" if len(program.files) == 1 else f"{name[:-3]}."
        rows.append(f"{where}{signature}{colon}{program.statements[name][language]}")
    return "\n".join(rows)


def _build(config: TaskSettings, split: str, names: Sequence[str], index: int, name: str) -> Task:
    program, visit = programs()[names[index % len(names)]], index // len(names)
    rng = Random(f"{config.seed}-{name}")
    if config.kind == TaskKind.SYNTHESIS:
        files = {file: stub(text) for file, text in program.files.items()}
        bugs, failing = 1, list(range(len(program.pool)))
    else:
        result = _bugs(program.name, config.operators, config.seed)
        bugs, bug = len(result), result[visit % len(result)]
        files = bug.apply(program.files)
        failing = [number for number in range(len(program.pool)) if bug.fails(number)]
    # Languages take turns from program to program, and again when all bugs of a program were had.
    language = config.languages[(index + visit + visit // bugs) % len(config.languages)]
    visible, hidden = _chosen(program.pool, failing, rng)
    solution = {file: text for file, text in program.files.items() if text != files[file]}
    task = CodeTask(statement(program, config.kind, language), files, visible, hidden, solution)
    return Task(name, split, prompt_of(task, language), language, level_of(program), task)


def _chosen(pool: Sequence[Case], failing: Sequence[int], rng: Random) -> tuple[tuple[Case, ...], tuple[Case, ...]]:
    """(seen, paying) checks, a failing one among each."""
    seen, pays = rng.sample(failing, 2)
    rest = rng.sample([number for number in range(len(pool)) if number not in (seen, pays)], VISIBLE + HIDDEN - 2)
    visible, hidden = [seen, *rest[: VISIBLE - 1]], [pays, *rest[VISIBLE - 1 :]]
    return tuple(pool[number] for number in sorted(visible)), tuple(pool[number] for number in sorted(hidden))


@lru_cache(maxsize=64)
def _order(
    kind: TaskKind, operators: tuple[Operator, ...], levels: tuple[int, ...], seed: int, split: str
) -> tuple[str, ...]:
    """The programs that tasks are made of, in an order drawn from the seed."""
    result = []
    for program in programs().values():
        fits = (len(program.files) > 1) == (kind == TaskKind.MULTI) and (not levels or level_of(program) in levels)
        if program.split == split and fits:
            if operators and not any(kinds <= set(operators) for kinds in operators_of(program)):
                continue
            result.append(program.name)
    Random(f"code-{kind}-{seed}-{split}").shuffle(result)
    return tuple(result)


@lru_cache(maxsize=1024)
def _bugs(name: str, operators: tuple[Operator, ...], seed: int) -> tuple[Bug, ...]:
    """The bugs of a program, one of each kind of mistake before the second of any."""
    rng = Random(f"code-{name}-{seed}")
    kinds: dict[frozenset[Operator], list[Bug]] = {}
    for bug in bugs_of(programs()[name]):
        if not operators or bug.operators <= set(operators):
            kinds.setdefault(bug.operators, []).append(bug)
    groups = list(kinds.values())
    rng.shuffle(groups)
    for group in groups:
        rng.shuffle(group)
    rows: Iterator[Bug | None] = chain.from_iterable(zip_longest(*groups))
    return tuple(bug for bug in rows if bug is not None)
