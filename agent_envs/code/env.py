"""The coding environment: read, change, run and check files; they are judged at the end.

Invariants: the files of an episode are an immutable value on the host, so a fork shares it; what an agent writes is run
in a sandbox only; hidden checks are made by `agent_envs.code.judge` and told to nobody; what the sandbox cannot do
raises, and is neither a reward nor an observation.

The turns are part of the task: with the last of them the files are judged as they stand, and the episode terminates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from agent_envs.actions import Action, ActionError, Grammar
from agent_envs.code import arguments, judge
from agent_envs.code.config import CodeConfig
from agent_envs.code.exercises import Place, exercise
from agent_envs.code.expert import Situation, chance, expert_turn
from agent_envs.code.lexicon import words
from agent_envs.code.replies import outcome_of, say, shortened
from agent_envs.code.reward import decide
from agent_envs.code.sandbox import Sandbox
from agent_envs.code.sandbox.choose import shared_sandbox
from agent_envs.code.state import CodeState
from agent_envs.code.task import CodeTask
from agent_envs.code.tasks.settings import GENERATED, LANGUAGES
from agent_envs.code.tasks.source import build
from agent_envs.code.verbs import BASH, VERBS
from agent_envs.code.view import echoed, lines_of, numbered, occurrences, standing, text_of
from agent_envs.code.workspace import BadFile, Bounds, Workspace, syntax_error, taken
from agent_envs.core import Drill, Outcome, SettingsError, Task, TaskSet, TextEnv

_LAST_TURNS = 3
"""So many turns before the end they begin to be counted aloud."""
_MAX_FOUND = 10


class CodeEnv(TextEnv):
    """Repair or write small programs. The reward is the share of the hidden checks that pass, as `reward` says."""

    name: ClassVar[str] = "code"
    Config: ClassVar[type[Any]] = CodeConfig
    config: CodeConfig
    grammar: ClassVar[Grammar] = Grammar(*VERBS)

    def __init__(self, config: CodeConfig | None = None) -> None:
        super().__init__(config)
        if self.config.bash:
            self.grammar = Grammar(*VERBS, BASH)  # type: ignore[misc]
        self._bounds = Bounds(self.config.files, self.config.file_kb)

    @property
    def sandbox(self) -> Sandbox:
        """The one of this process; raises SandboxUnavailable."""
        return shared_sandbox(self.config.sandbox)

    def prepare(self) -> None:
        _ = self.tasks("train"), self.sandbox

    def tasks(self, split: str) -> TaskSet:
        return build(self.config, split, sandbox=self.config.sandbox)

    def instructions(self, language: str) -> str:
        turns = self.config.turns
        if language == "zh":
            return f"修改文件，使所有检查通过，包括没有给出的检查；{turns}轮之内提交。"
        return f"Change the files so that all checks pass, also those that are not shown; submit within {turns} turns."

    def _begin(self, task: Task) -> CodeState:
        _ = self.sandbox  # it takes seconds to open, which a step may not have
        if not self._of(task).hidden and not self.config.forgeable:
            raise SettingsError(f"code: task {task.id} has no checks for the host: use --code.grader in-process")
        return CodeState(Workspace(dict(self._of(task).files)))

    def _copy_state(self, state: CodeState) -> CodeState:
        return state

    @staticmethod
    def _of(task: Task) -> CodeTask:
        assert isinstance(task.data, CodeTask)
        return task.data

    def _told(self, *, success: bool | None) -> dict[str, Any]:
        # Nobody is to take a verdict that can be forged for another.
        return super()._told(success=success) | ({"forgeable": True} if self.config.forgeable else {})

    # ---- turns ----------------------------------------------------------------------------------------------------
    @property
    def task_turns(self) -> int:
        return self.config.turns

    def _out_of_turns(self) -> Outcome:
        return self._judged()

    def _act(self, action: Action) -> Outcome:
        left = self.task_turns - self.turn
        if not left and action.name == "TEST":
            return self._judged()  # nobody would read what else it leads to
        try:
            # Every action is carried out by the method of its name.
            outcome: Outcome = getattr(self, f"_{action.name.lower()}")(action)
        except BadFile as refusal:
            outcome = self._say(refusal.key, **refusal.values)
        if outcome.terminated or not 0 < left <= _LAST_TURNS:
            return outcome
        counted = self._say("left" if left > 1 else "left1", left=left).text
        return replace(outcome, text=f"{outcome.text}\n{counted}")

    def _say(self, key: str, **values: object) -> Outcome:
        return Outcome(say(key, self.task.language, **values))

    @property
    def _files(self) -> Mapping[str, str]:
        files: Mapping[str, str] = self._state.now.files
        return files

    def _text(self, name: str) -> str:
        if name not in self._files:
            raise BadFile("nofile", names=", ".join(sorted(self._files)))
        return self._files[name]

    def _shown(self, name: str, first: int, last: int) -> str:
        """Lines with their numbers; those that are shown whole are seen now."""
        rows = numbered(lines_of(self._files[name]), first, last)
        text = shortened(rows, self.config.output_tokens + 20 * (last - first), self.task.language)
        whole = set(text.split("\n"))
        seen = [number for number, row in enumerate(rows.split("\n"), first) if row in whole]
        self._state = replace(self._state, now=self._state.now.saw(name, seen))
        return text

    def _view(self, action: Action) -> Outcome:
        name, chosen = arguments.file_and_range(action.args, self._files)
        lines = len(lines_of(self._text(name)))
        first, last = chosen or (1, lines)
        if not lines:
            return self._say("empty", name=name)
        if first > lines:
            return self._say("lines", name=name, lines=lines)
        last = min(max(first, last), lines, first + self.config.window - 1)
        whole = (first, last) == (1, lines)
        head = self._say("file" if whole else "shown", name=name, lines=lines, first=first, last=last).text
        return Outcome(f"{head}\n{self._shown(name, first, last)}")

    def _search(self, action: Action) -> Outcome:
        wanted, only = arguments.text_and_file(action.args, self._files)
        result = [
            (name, number)
            for name, text in sorted(self._files.items())
            if only in (None, name)
            for number, line in enumerate(lines_of(text), 1)
            if wanted in line
        ]
        if not result:
            return self._say("notfound")
        rows = []
        for name, number in result[:_MAX_FOUND]:
            rows.append(f"{name}:{self._shown(name, number, number)}")
        if len(result) > _MAX_FOUND:
            rows.append(self._say("further", left=len(result) - _MAX_FOUND).text)
        return Outcome("\n".join(rows))

    def _create(self, action: Action) -> Outcome:
        if action.args in self._files:
            return self._say("exists", name=action.args)
        now = self._state.now.written(action.args, action.body or "", self._bounds)
        lines = len(lines_of(now.files[action.args]))
        self._state = self._state.changed(now.saw(action.args, range(1, lines + 1)))
        return self._say("created", name=action.args, lines=lines)

    def _edit(self, action: Action) -> Outcome:
        name, first, last = arguments.lines_asked(action.args, self._files)
        self._check_lines(name, first, last)
        body = action.body or ""
        return self._rewrite(name, self._state.now.edited(name, first, last, body), first, len(lines_of(body)), last)

    def _check_lines(self, name: str, first: int, last: int) -> None:
        """Raises BadFile for lines that are not there, or that were not shown as they are now."""
        count = len(lines_of(self._text(name)))
        if last > count or first > count + 1:
            raise BadFile("lines", name=name, lines=count)
        if not self._state.now.has_seen(name, first, last):
            raise BadFile("stale", first=first, last=max(first, last))

    def _replace(self, action: Action) -> Outcome:
        name, chosen = arguments.file_and_range(action.args, self._files)
        old, new = arguments.old_and_new(action.body or "")
        lines = lines_of(self._text(name))
        begin, end = chosen or (1, len(lines))
        if chosen:
            self._check_lines(name, begin, end)
        at, matches = occurrences(lines[begin - 1 : end], lines_of(old))
        if matches > 1:
            return self._say("matches", matches=matches)
        if not matches:
            return self._replace_part(name, begin, end, old.removesuffix("\n"), new.removesuffix("\n"))
        first, last = begin + at - 1, begin + at + len(lines_of(old)) - 2
        return self._rewrite(name, self._state.now.edited(name, first, last, new), first, len(lines_of(new)), last)

    def _replace_part(self, name: str, begin: int, end: int, old: str, new: str) -> Outcome:
        """The same, in the lines ``begin`` to ``end``, of a text that is no whole lines."""
        lines = lines_of(self._files[name])
        before, here, after = text_of(lines[: begin - 1]), text_of(lines[begin - 1 : end]), text_of(lines[end:])
        at = here.find(old) if old.strip() else -1
        if at < 0:
            elsewhere = [self._shown(name, number, number) for number in standing(lines, old)]
            return Outcome("\n".join([self._say("notfound").text, *elsewhere]))
        if here.find(old, at + 1) >= 0:
            return self._say("matches", matches=max(2, here.count(old)))
        first = begin + here.count("\n", 0, at)
        text = f"{before}{here[:at]}{new}{here[at + len(old) :]}{after}"
        return self._rewrite(name, text, first, 1 + new.count("\n"), first + old.count("\n"))

    def _rewrite(self, name: str, text: str, first: int, count: int, last: int) -> Outcome:
        """A file gets a text that differs where ``count`` lines from ``first`` on stand for those up to ``last``."""
        before = self._files[name]
        if text == before:
            return self._say("same")
        error = syntax_error(name, text)
        if error is not None and syntax_error(name, before) is None:
            now, then = lines_of(before), lines_of(text)
            return self._say(
                "syntax",
                error=error[1],
                now=numbered(now, first, min(last, len(now))),
                then=numbered(then, first, min(first + count - 1, len(then))),
            )
        self._state = self._state.changed(self._state.now.written(name, text, self._bounds))
        self._state = replace(self._state, edits=self._state.edits + 1)
        around = echoed(lines_of(text), first, count, self.config.echo)
        rows = [self._say("edited").text]
        return Outcome("\n".join([*rows, self._shown(name, around.start, around.stop - 1)] if around else rows))

    def _undo(self, action: Action) -> Outcome:
        state = self._state
        if not state.before:
            return self._say("noundo")
        back, files = state.before[-1], state.now.files
        names = sorted(name for name in {*files, *back.files} if files.get(name) != back.files.get(name))
        self._state = replace(state, now=back, before=state.before[:-1], tested=None, undone=(*state.undone, files))
        return self._say("undone", names=", ".join(names))

    # ---- programs -------------------------------------------------------------------------------------------------
    def _run(self, action: Action) -> Outcome:
        name = arguments.file_or_only(action.args, self._files)
        self._text(name)
        return self._executed(["python", name], (action.body or "").encode("utf-8", "replace"))

    def _bash(self, action: Action) -> Outcome:
        if "\0" in action.args:
            raise ActionError("a command holds no zero byte", "命令不能含零字节")
        return self._executed(["bash", "-c", action.args.encode("utf-8", "replace").decode()], b"")

    def _executed(self, argv: Sequence[str], stdin: bytes) -> Outcome:
        files = {name: text.encode() for name, text in self._files.items()}
        result = judge.run(self.sandbox, argv, files, stdin=stdin, limits=self.config.limits)
        rows = [outcome_of(result, self.config.output_tokens, self.task.language)]
        now, kept, lost = taken(self._state.now, result, self._bounds)
        if kept:
            self._state = self._state.changed(now)
        for key, names in (("kept", kept), ("notkept", lost)):
            rows += [self._say(key, names=", ".join(names[:_MAX_FOUND])).text] if names else []
        return Outcome("\n".join(rows))

    def _test(self, action: Action) -> Outcome:
        cases = self._of(self.task).visible
        if not cases:
            return self._say("notests")
        config = self.config
        checked = judge.check(self.sandbox, self._files, cases, seconds=config.case_seconds, memory_mb=config.memory_mb)
        passed = tuple(check.passed for check in checked)
        self._state = replace(self._state, tested=passed, tests=self._state.tests + 1)
        rows = [
            self._say("ok" if check.passed else "wrong", number=number, got=check.got).text
            for number, check in enumerate(checked, 1)
        ]
        rows = [shortened("\n".join(rows), config.output_tokens, self.task.language)]
        return Outcome("\n".join([*rows, self._say("passed", passed=sum(passed), total=len(passed)).text]))

    def _submit(self, action: Action) -> Outcome:
        return self._judged()

    # ---- the end --------------------------------------------------------------------------------------------------
    def _judged(self) -> Outcome:
        verdict = decide(self._of(self.task), self._files, self.config, self.sandbox)
        self._state = replace(self._state, verdict=verdict)
        return Outcome("", verdict.reward, terminated=True, success=verdict.passed == verdict.total)

    def _metrics(self, *, over: bool) -> Mapping[str, float]:
        state = self._state
        metrics = {"edits": float(state.edits), "tests": float(state.tests)}
        if state.verdict is None:
            return metrics
        passed = state.verdict.passed / state.verdict.total
        return metrics | {"passed": passed, "undone": float(len(state.undone))}

    # ---- what a small model learns to read from ---------------------------------------------------------------------
    def lexicon(self) -> Sequence[str]:
        if self.config.source != GENERATED:
            return ()
        texts = [(self.instructions(at), self.grammar.format(at), self.grammar.usage(at)) for at in LANGUAGES]
        return words(self.grammar, tuple("\n".join(lines) for lines in texts))

    def drill(self, task: Task, rng: np.random.Generator) -> Drill | None:
        """Repairing a program, as `agent_envs.code.exercises` says."""
        data = self._of(task)
        name = min(data.solution or data.files)
        values = tuple(repr(case.expected) for case in (*data.visible, *data.hidden))
        place = Place(name, len(data.files) == 1, self.config.echo, task.language, len(data.visible), values)
        text, turns = exercise(data.files.get(name, ""), data.solution.get(name, ""), place, rng)
        lines = lines_of(text)
        if len(lines) > self.config.window or not turns:
            return None
        head = say("file", task.language, name=name, lines=len(lines))
        return f"{head}\n{numbered(lines, 1, len(lines))}", turns

    # ---- the expert -----------------------------------------------------------------------------------------------
    def _situation(self) -> Situation:
        task, state = self._of(self.task), self._state
        left = self.task_turns - self.turn
        language, window = self.task.language, self.config.window
        return Situation(task, language, state.now, state.before, state.tested, state.undone, left, window)

    def oracle(self) -> float | None:
        """The chance of the agent that `chance` describes; None where no solution is known."""
        return chance(self._situation(), self.config.skill)

    def expert(self, *, flaw: float = 0.0, rng: np.random.Generator | None = None) -> str:
        return expert_turn(self._situation(), flaw, rng)
