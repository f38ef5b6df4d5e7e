"""The text of a coding task: the goal, the files, and the visible checks.

Invariant: nothing of the hidden checks and of the solution is in it.
"""

from agent_envs.code.replies import say
from agent_envs.code.task import Case, CodeTask, Identity
from agent_envs.code.values import show
from agent_envs.code.view import lines_of

_MOST = 400


def prompt_of(task: CodeTask, language: str) -> str:
    """The first user message of the task."""
    rows = [task.statement, *(file_row(name, text, language) for name, text in task.files.items())]
    rows += [f"{number}: {shown(case, task)}" for number, case in enumerate(task.visible, 1)]
    return "\n".join(rows)


def file_row(name: str, text: str, language: str) -> str:
    """A file's name and how long it is."""
    lines = len(lines_of(text))
    return say("file" if lines else "empty", language, name=name, lines=lines)


def shown(case: Case, task: CodeTask) -> str:
    """A check as an agent reads it; the module is named where there are several."""
    module = f"{case.module}: " if sum(name.endswith(".py") for name in task.files) > 1 else ""
    tolerance = f" ± {case.tolerance}" if case.tolerance else ""
    compared = "is" if isinstance(case, Identity) else "=="
    return f"{module}{case.expression} {compared} {show(case.expected, _MOST)}{tolerance}"
