"""The scripted expert, and the demonstrator with a systematic flaw for behaviour cloning.

Invariants: a turn depends on the state of the episode (and, with a flaw, on ``rng``) only; without a flaw the expert is
right from every state that leaves it enough turns. Each thought quotes what the action is made from: the lines that are
changed as they were shown, or how many checks passed.

The flawed one gives up where it sees a check fail, and submits what there is. Or it makes a mistake where it should
fix one: it changes something that was not wrong, as the operators of `agent_envs.code.tasks.mutate` do. It does not
know that, so it tests; and where it does not give up, it takes the change back and tries what it did not try before.
Where it can, it changes a part of a line, or puts one in, and no whole lines: the less has to be copied, the more a
small model gets right of programs that it never saw.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from agent_envs.actions import render
from agent_envs.code.arguments import SEPARATOR
from agent_envs.code.hunks import Hunk, hunks, snippet
from agent_envs.code.replies import say
from agent_envs.code.task import CodeTask
from agent_envs.code.tasks.mutate import mutants
from agent_envs.code.view import lines_of, numbered, text_of
from agent_envs.code.workspace import BadFile, Bounds, Workspace, syntax_error
from agent_envs.oracle import chance as chance_of

MISTAKEN = 0.5
"""Share of the flaw that changes what was not wrong; the whole of it gives up where a check is seen to fail."""
_QUOTED = 3
"""Most lines that a thought quotes."""
_FAR_BACK = 4
"""Most changes that are thought of being taken back."""
_ROOM = Bounds(files=1 << 20, file_kb=1 << 20)


@dataclass(frozen=True)
class Situation:
    """What the expert sees: the state of an episode."""

    task: CodeTask
    language: str
    now: Workspace
    before: Sequence[Workspace]
    """What UNDO goes back to, oldest first."""
    tested: tuple[bool, ...] | None
    """Which visible checks passed with the files as they are."""
    undone: Sequence[Mapping[str, str]]
    """Files that were taken back."""
    left: int
    """Turns left, this one included."""
    window: int
    """Most lines that a VIEW shows."""

    @property
    def target(self) -> Mapping[str, str]:
        """The files as the known solution has them."""
        return {**self.task.files, **self.task.solution}


@dataclass(frozen=True)
class Step:
    """A turn that is to be made."""

    verb: str
    args: str = ""
    thought: str = ""
    body: str | None = None
    optional: bool = False
    """Whether it is left out where there is no turn for it."""

    def turn(self) -> str:
        """Its text."""
        return render(self.verb, self.args, self.thought, self.body)


def expert_turn(now: Situation, flaw: float = 0.0, rng: np.random.Generator | None = None) -> str:
    """The next turn. `rng` is needed when `flaw` > 0."""
    if flaw > 0 and rng is None:
        raise ValueError("an expert with a flaw needs an rng")
    if rng is not None and flaw > 0:
        return _flawed(now, flaw, rng).turn()
    todo = plan(now) or []
    needed = sum(not step.optional for step in todo)
    for step in todo:
        if not step.optional or now.left > needed:
            return step.turn()
    return _finish(now).turn()


def chance(now: Situation, skill: float) -> float | None:
    """The exact chance of success from here, without a simulation; None for a task without a known solution.

    The agent makes the expert's next turn with probability `skill`, and else wastes the turn without harm; like the
    expert it looks at the checks first if it has a turn to spare. Files that are right at the last turn are enough.
    """
    if not now.task.solution:
        return None
    todo = plan(now)
    return 0.0 if todo is None else chance_of([step.optional for step in todo], now.left, skill)


def plan(now: Situation) -> list[Step] | None:
    """The steps to files that are right, no step where they are, None where no way leads there. The fewest, beside one
    look at the checks before all."""
    todo = _repairs(now.now, now)
    back = 0
    for k, earlier in enumerate(reversed(now.before[-_FAR_BACK:]), 1):
        other = _repairs(earlier, now)
        if other is not None and (todo is None or k + len(other) <= back + len(todo)):
            back, todo = k, other
    if todo is None or (not todo and not back):
        return todo
    undo = Step("UNDO", "", _passed(now))
    look = [Step("TEST", optional=True)] if _not_tested_at_all(now) and todo[0].verb != "VIEW" else []
    later = [Step("TEST", optional=True)] if _not_tested_at_all(now) and not look else []
    return [*look, *[undo] * back, *todo[:1], *later, *todo[1:]]


def _not_tested_at_all(now: Situation) -> bool:
    return bool(now.task.visible) and now.tested is None and not now.before and not now.undone


def _repairs(space: Workspace, now: Situation) -> list[Step] | None:
    """VIEW, EDIT and CREATE, from these files to right ones; None where a program made a folder of a file's name."""
    steps = []
    while (name := _wrong(space, now)) is not None:
        wanted = now.target[name]
        if name not in space.files:
            steps.append(Step("CREATE", name, "", wanted))
            try:
                space = space.written(name, wanted, _ROOM)
            except BadFile:
                return None
            continue
        hunk = _next_hunk(space.files[name], wanted, name)
        seen = space.has_seen(name, hunk.first, hunk.last)
        step, space = _edit(space, name, hunk) if seen else _view(space, name, hunk, now.window)
        steps.append(step)
    return steps


def _wrong(space: Workspace, now: Situation) -> str | None:
    """The first file that is not as the solution has it."""
    for name, wanted in sorted(now.target.items()):
        if name not in space.files or lines_of(space.files[name]) != lines_of(wanted):
            return name
    return None


def _next_hunk(before: str, after: str, name: str) -> Hunk:
    """The last of the changes that are left, so that the lines of the others keep their numbers.

    Where it alone would break the syntax, all of them at once.
    """
    result = hunks(before, after)
    last = result[-1]
    if len(result) == 1 or syntax_error(name, _applied(before, last)) is None:
        return last
    lines = lines_of(after)
    end = len(lines) - (len(lines_of(before)) - last.last)
    return Hunk(result[0].first, last.last, tuple(lines[result[0].first - 1 : end]))


def _applied(text: str, hunk: Hunk) -> str:
    lines = lines_of(text)
    return text_of([*lines[: hunk.first - 1], *hunk.lines, *lines[hunk.last :]])


def _edit(space: Workspace, name: str, hunk: Hunk) -> tuple[Step, Workspace]:
    lines = lines_of(space.files[name])
    first, last = (hunk.first, hunk.last) if hunk.first <= hunk.last else (hunk.first - 1, hunk.first - 1)
    quoted = numbered(lines, first, last).strip() if first >= 1 and last - first < _QUOTED else ""
    place = str(hunk.first) if hunk.first == hunk.last else f"{hunk.first}:{hunk.last}"
    step = Step("EDIT", _with_name(space, name, place), quoted, text_of(hunk.lines))
    after = space.written(name, _applied(space.files[name], hunk), _ROOM)
    return step, after.saw(name, range(hunk.first, hunk.first + len(hunk.lines)))


def shortest(text: str, hunk: Hunk, name: str = "") -> Step | None:
    """The turn that puts a line in, or changes a part of one; None where it is neither, or the part cannot be named.
    ``name`` is empty for the only file."""
    if hunk.last < hunk.first and len(hunk.lines) == 1:
        return Step("EDIT", _named(name, f"{hunk.first}:{hunk.last}"), "", text_of(hunk.lines))
    parts = snippet(text, hunk)
    return None if parts is None else replacing(hunk.first, *parts, name)


def replacing(number: int, old: str, new: str, name: str = "") -> Step:
    """The turn that changes a part of that line. ``name`` is empty for the only file."""
    return Step("REPLACE", _named(name, str(number)), "", f"{old}\n{SEPARATOR}\n{new}\n")


def _view(space: Workspace, name: str, hunk: Hunk, window: int) -> tuple[Step, Workspace]:
    lines = len(lines_of(space.files[name]))
    if lines <= window:
        return Step("VIEW", _with_name(space, name, "")), space.saw(name, range(1, lines + 1))
    wanted = range(hunk.first, hunk.last + 1) or range(max(1, hunk.first - 1), max(1, hunk.first - 1) + 1)
    first = next(number for number in wanted if not space.has_seen(name, number, number))
    last = min(first + window - 1, lines)
    return Step("VIEW", _with_name(space, name, f"{first}:{last}")), space.saw(name, range(first, last + 1))


def _with_name(space: Workspace, name: str, place: str) -> str:
    """The argument of an action; the only file is not named."""
    return place if len(space.files) == 1 else _named(name, place)


def _named(name: str, place: str) -> str:
    return ", ".join(part for part in (name, place) if part)


def _finish(now: Situation) -> Step:
    """Nothing is left to be fixed: a last look at the checks, and the end."""
    if now.tested is None and now.task.visible and now.left > 1:
        return Step("TEST")
    return Step("SUBMIT", "", _passed(now))


def _passed(now: Situation) -> str:
    """How many checks passed, as TEST says it; nothing where they were not made."""
    if now.tested is None:
        return ""
    return say("passed", now.language, passed=sum(now.tested), total=len(now.tested))


def _flawed(now: Situation, flaw: float, rng: np.random.Generator) -> Step:
    if now.tested is not None and not all(now.tested) and rng.random() < flaw:
        return Step("SUBMIT", "", _passed(now))
    todo = _repairs(now.now, now)
    if now.before:
        if not todo or (now.tested is None and now.task.visible) or now.left == 1:
            return _finish(now)
        if now.tested is None or all(now.tested):
            return Step("SUBMIT", "", _passed(now))  # what it cannot see, it does not know
        earlier = _repairs(now.before[-1], now)
        if earlier is not None and len(earlier) <= len(todo):
            return Step("UNDO", "", _passed(now))
    if not todo:
        return _finish(now)
    if todo[0].verb == "VIEW":
        return todo[0]
    if _not_tested_at_all(now) and now.left > len(todo):
        return Step("TEST")
    wrong = _mistake(now, rng) if rng.random() < flaw * MISTAKEN else None
    return wrong or _right(now) or todo[0]


def _right(now: Situation) -> Step | None:
    """The next change for the better, if it is a part of a line, or a line that is missing."""
    name = _wrong(now.now, now)
    if name is None or name not in now.now.files:
        return None
    return _small(now.now, name, _next_hunk(now.now.files[name], now.target[name], name))


def _small(space: Workspace, name: str, hunk: Hunk) -> Step | None:
    return shortest(space.files[name], hunk, "" if len(space.files) == 1 else name)


def _mistake(now: Situation, rng: np.random.Generator) -> Step | None:
    """A change of something that was not wrong, which was not tried before; None where there is none."""
    name = _wrong(now.now, now)
    if name is None or name not in now.now.files:
        return None
    text = now.now.files[name]
    tried = {files.get(name) for files in now.undone} | {now.target[name]}
    open_to = [other for other in changed(text) if other not in tried]
    if not open_to:
        return None
    (hunk,) = hunks(text, open_to[int(rng.integers(len(open_to)))])
    if not now.now.has_seen(name, hunk.first, hunk.last):
        return None
    return _small(now.now, name, hunk) or _edit(now.now, name, hunk)[0]


@lru_cache(maxsize=4096)
def changed(text: str) -> tuple[str, ...]:
    """What the text becomes by one small mistake, in one piece."""
    try:
        result = [mutant.apply(text) for mutant in mutants(text)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(other for other in result if len(hunks(text, other)) == 1)
