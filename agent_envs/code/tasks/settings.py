"""Settings of coding tasks; every mistake in them is one line."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agent_envs.core import SettingsError
from agent_envs.ranges import check_ranges

GENERATED = "generated"
LANGUAGES = ("en", "zh")
LEVELS = (1, 2, 3)


class TaskKind(StrEnum):
    """What is to be done."""

    REPAIR = "repair"
    """One file with one bug."""
    SYNTHESIS = "synthesis"
    """One file with an empty function or class."""
    MULTI = "multi"
    """Two or three files that import each other, with a bug in one of them or in two."""


class Operator(StrEnum):
    """What kind of mistake was made in a task that asks for a repair."""

    BOUNDARY = "boundary"
    """`<` for `<=`, and the like."""
    COMPARE = "compare"
    """The opposite comparison: `<` for `>`, `==` for `!=`, `in` for `not in`."""
    ARITHMETIC = "arithmetic"
    """`+` for `-`, `//` for `%`, and the like."""
    CONSTANT = "constant"
    """A number that is one too many or too few."""
    INITIAL = "initial"
    """A variable that begins with another value."""
    NEGATE = "negate"
    """A condition that is asked for the other way round."""
    LOGIC = "logic"
    """`and` for `or`, and the other way round."""
    VARIABLE = "variable"
    """Another variable."""
    ARGUMENTS = "arguments"
    """Two arguments, or two operands, in the wrong order."""
    INDEX = "index"
    """Another index, another end of a slice."""
    METHOD = "method"
    """`min` for `max`, `lower` for `upper`, `append` for `extend`, and the like."""
    RETURN = "return"
    """Another value is given back, or none."""
    REMOVE = "remove"
    """A statement that is missing."""
    INDENT = "indent"
    """A statement that stands one block too deep, or one too far out."""
    JUMP = "jump"
    """`break` for `continue`, and the other way round."""


class Grader(StrEnum):
    """Who decides about the tasks of a file."""

    CASES = "cases"
    """Values are compared on the host; tasks of a file whose checks are no such comparison are left out."""
    IN_PROCESS = "in-process"
    """Every check, and the program of a task whose checks are no comparison, runs beside the submission, which can
    forge the verdict; so every info says `forgeable`."""


@dataclass(frozen=True)
class TaskSettings:
    """Which coding tasks there are."""

    source: str = GENERATED
    """Where tasks come from: `generated`, or a .jsonl (or .jsonl.gz) file in the manner of HumanEval, MBPP or EvalPlus,
    or a folder with some of train.jsonl, valid.jsonl and test.jsonl."""
    kind: TaskKind = TaskKind.REPAIR
    """Generated tasks only: what is to be done."""
    operators: tuple[Operator, ...] = ()
    """Generated repairs only: which mistakes were made; all when none is named."""
    levels: tuple[int, ...] = ()
    """Generated tasks only: which sizes, some of 1, 2 and 3 (small, medium, large); all when none is named."""
    grader: Grader = Grader.CASES
    """Where checks are made: on the host, or in the process of the submission, which can forge the verdict."""
    languages: tuple[str, ...] = LANGUAGES
    """Languages of the tasks, en, zh or both; of a file, tasks in another language are left out."""
    seed: int = 0
    """Another number draws other tasks."""
    train_tasks: int = 20000
    """Tasks to learn from; a file may have fewer."""
    held_out_tasks: int = 1000
    """Tasks of validation, and as many of test; a file may have fewer."""

    @property
    def chosen_operators(self) -> tuple[Operator, ...]:
        """The operators, whether named or not."""
        return self.operators or tuple(Operator)

    @property
    def chosen_levels(self) -> tuple[int, ...]:
        """The levels, whether named or not."""
        return self.levels or LEVELS

    def __post_init__(self) -> None:
        for name, known in (("operators", tuple(Operator)), ("levels", LEVELS), ("languages", LANGUAGES)):
            value = getattr(self, name)
            if len(set(value)) < len(value) or not set(value) <= set(known):
                raise SettingsError(f"code: {name} must be distinct ones of {', '.join(map(str, known))}, not {value}")
        if not self.languages:
            raise SettingsError("code: languages names none: use en, zh or both")
        tasks = dict.fromkeys(("train_tasks", "held_out_tasks"), (1, 10_000_000))
        check_ranges(self, SettingsError, "code: ", **tasks)
        if self.source == GENERATED:
            if self.operators and self.kind == TaskKind.SYNTHESIS:
                raise SettingsError("code: operators do not act with kind synthesis, which has nothing to repair")
            return
        for name, default in (("kind", TaskKind.REPAIR), ("operators", ()), ("levels", ()), ("seed", 0)):
            if getattr(self, name) != default:
                raise SettingsError(f"code: {name} acts on generated tasks only, not on those of {self.source}")
