"""A python tool for environments that have none: ``PYTHON(code)``, or with the code in the lines below ``PYTHON()``.

Invariants: what is run knows the code and nothing else, and what it changes is gone with it, so a state of the
environment is what it was without the tool; the same code gives the same observation.

A program that prints nothing gives the empty text, which the agent reads as "Tool(PYTHON) returned empty output.". An
environment with the tool is a class with one base more and settings of two fields more; `agent_envs.wiki.python` is the
wiki with it::

    @dataclass(frozen=True)
    class WikiPythonConfig(PythonSettings, WikiConfig): ...

    class WikiPythonEnv(PythonTool, WikiEnv):
        name = "wiki_python"
        Config = WikiPythonConfig
        grammar = with_python(WikiEnv.grammar)
"""

from dataclasses import dataclass
from typing import Any

from agent_envs.actions import Action, ActionError, Args, Grammar, Verb
from agent_envs.code import judge
from agent_envs.code.memo import Memo
from agent_envs.code.replies import ended, shortened
from agent_envs.code.sandbox import Limits, RunResult, Status
from agent_envs.code.sandbox.choose import NAMES, shared_sandbox
from agent_envs.code.view import printed
from agent_envs.core import Outcome, SettingsError, Task, TextEnv
from agent_envs.ranges import check_ranges

VERB = Verb(
    "PYTHON",
    "code",
    Args.OPTIONAL,
    {"zh": "代码"},
    {"zh": "python代码"},
    {"en": "[more code]", "zh": "[更多代码]"},
    Args.OPTIONAL,
)


_RUNS = Memo(1 << 14)


@dataclass(frozen=True)
class PythonSettings:
    """Settings of the python tool."""

    python_sandbox: str = "auto"
    """Where PYTHON(code) runs: auto, namespace, landlock, docker, or unsafe-process, which isolates nothing."""
    python_seconds: float = 5.0
    """Time that one program may run."""
    python_tokens: int = 400
    """Most words and signs of what it prints that are shown: the rest is left out of the middle."""

    def __post_init__(self) -> None:
        if self.python_sandbox not in NAMES:
            raise SettingsError(f"unknown python_sandbox {self.python_sandbox!r}: use {', '.join(NAMES)}")
        check_ranges(self, SettingsError, python_seconds=(0.1, 20), python_tokens=20)
        above: Any = super()
        if hasattr(above, "__post_init__"):
            above.__post_init__()


def with_python(grammar: Grammar) -> Grammar:
    """The grammar with the tool's verb before its last one, which in our environments ends the episode."""
    *first, last = grammar.verbs
    return Grammar(*first, VERB, last)


class PythonTool(TextEnv):
    """Adds the tool to the environment that is the next base."""

    def prepare(self) -> None:
        super().prepare()
        shared_sandbox(self.config.python_sandbox)

    def _begin(self, task: Task) -> Any:
        shared_sandbox(self.config.python_sandbox)  # it takes seconds to open, which a step may not have
        return super()._begin(task)  # type: ignore[safe-super]

    def _act(self, action: Action) -> Outcome:
        if action.name != VERB.name:
            return super()._act(action)  # type: ignore[safe-super]
        code = "\n".join(part for part in (action.args, action.body) if part)
        if not code.strip():
            raise ActionError("there is no code", "没有代码")
        try:
            source = code.encode()
        except UnicodeEncodeError:
            raise ActionError("the code is not valid Unicode", "代码不是有效的 Unicode") from None
        sandbox, limits = shared_sandbox(self.config.python_sandbox), Limits(seconds=self.config.python_seconds)
        most, language = self.config.python_tokens, self.task.language

        def run() -> tuple[str, ...]:
            result = judge.run(sandbox, ["python", "-"], {}, stdin=source, limits=limits)
            return answer(result, most, language), result.status

        # The episodes of a group often run the same program. What ran out of time may do better on a quieter machine.
        question = (self.config.python_sandbox, limits, most, language, code)
        text, _ = _RUNS.ask(question, run, keeps=lambda answers: answers[1] in (Status.OK, Status.ERROR))
        return Outcome(text)


def answer(result: RunResult, most: int, language: str) -> str:
    """What a program printed; where it failed, also how it ended or the last line of its error."""
    rows = [shortened(out, most, language)] if (out := printed(result.stdout)) else []
    if not result.ok:
        errors = printed(result.stderr).splitlines() if result.status is Status.ERROR else []
        rows.append(shortened(errors[-1] if errors else ended(result, language), most, language))
    return "\n".join(rows)
