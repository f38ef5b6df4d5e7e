"""The python tool of other environments: what it answers, that it leaves the state alone, and the contract with it."""

from dataclasses import asdict, dataclass
from typing import Any

import pytest

from agent_envs.actions import Grammar, Verb
from agent_envs.code import judge
from agent_envs.code.python_tool import PythonSettings, PythonTool, with_python
from agent_envs.code.sandbox import SandboxFault
from agent_envs.contract.check import check_text_env
from agent_envs.core import SettingsError
from agent_envs.identity.config import IdentityConfig
from agent_envs.identity.env import IdentityEnv
from agent_envs.wiki.config import OutcomeScore, WikiConfig
from agent_envs.wiki.env import WikiEnv
from agent_envs.wiki.python import WikiPythonConfig, WikiPythonEnv


@dataclass(frozen=True)
class CountingConfig(PythonSettings, IdentityConfig):
    """An environment of somebody else, with the tool."""


class CountingEnv(PythonTool, IdentityEnv):
    name = "counting"
    Config = CountingConfig
    grammar = with_python(IdentityEnv.grammar)


def made(**settings: Any) -> CountingEnv:
    env = CountingEnv(CountingConfig(python_sandbox="namespace", max_turns=30, **settings))
    env.reset(seed=0)
    return env


def ask(env: CountingEnv | WikiPythonEnv, code: str) -> str:
    return env.step(f"<action>PYTHON()\n{code}\n</action>")[0]


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("x = 6\nprint(x * 7)", "42"),
        ("print('a\\n\\nb\\n')", "a\n\nb"),
        ("x = 1", ""),
        ("print(1)\nprint(y)", "1\nNameError: name 'y' is not defined"),
        ("if x", "SyntaxError: expected ':'"),
        ("import sys; sys.exit(3)", "exit 3"),
        ("print(object())", "<object object at 0x…>"),
        ("while True: pass", "timeout"),
        ("print(input())", "EOFError: EOF when reading a line"),
    ],
)
def test_what_it_answers(code: str, answer: str) -> None:
    env = made(python_seconds=1.0)
    wish = env.expert()
    assert ask(env, code) == answer
    assert env.expert() == wish and ask(env, "print(x)") == "NameError: name 'x' is not defined"  # nothing is kept


def test_one_line_of_code_stands_in_the_call() -> None:
    env = made()
    assert env.step("<action>PYTHON(print((1 + 2) * 3))</action>")[0] == "9"
    assert env.step("<think>so</think>\nPYTHON(print(4))")[0] == "4"
    assert env.step("<action>代码(x = 2)\nprint(x)\n</action>")[0] == "2"


def test_much_output_is_cut_in_the_middle() -> None:
    text = ask(made(python_tokens=40), "for n in range(1000): print(n)")
    assert text.startswith("0\n1\n") and text.endswith("\n998\n999") and " more lines]\n" in text


def test_what_is_no_code() -> None:
    env = made()
    assert env.step("<action>PYTHON()</action>")[4]["error"] == "there is no code"
    assert env.step("<action>PYTHON(\ud800)</action>")[4]["error"] == "the code is not valid Unicode"
    assert env.step(env.expert())[4]["invalid"] is False  # the control: all other actions go on


def test_a_broken_sandbox_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any, **more: Any) -> Any:
        raise SandboxFault("the disk is gone")

    env = made()
    monkeypatch.setattr(judge, "run", broken)
    with pytest.raises(SandboxFault):
        ask(env, "print('for the first time')")


def test_the_same_program_runs_once_unless_it_ran_out_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, true = [], judge.run

    def counted(*given: Any, **more: Any) -> Any:
        runs.append(more["stdin"])
        return true(*given, **more)

    monkeypatch.setattr(judge, "run", counted)
    # Plenty of time for the one that ends, on a busy machine too.
    for code, seconds, count in (("print('once', 6 * 7)", 5.0, 1), ("while 'never kept': pass", 0.2, 2)):
        runs.clear()
        assert ask(made(python_seconds=seconds), code) == ask(made(python_seconds=seconds), code)
        assert len(runs) == count
    assert ask(made(python_seconds=6.0), "print('once', 6 * 7)") == "once 42" and len(runs) == 3, "other limits"


def test_contract_of_another_environment() -> None:
    check_text_env(lambda: CountingEnv(CountingConfig(python_sandbox="namespace")), tasks=2)


def test_the_wiki_with_the_tool_is_the_wiki_and_a_tool(small: WikiConfig) -> None:
    plain = WikiEnv(small)
    env = WikiPythonEnv(WikiPythonConfig(**asdict(small), python_sandbox="namespace"))
    task = plain.tasks("train")[0]
    assert env.reset(options={"task": task.id})[0] == plain.reset(options={"task": task.id})[0]
    assert "PYTHON(code)⏎[more code] SUBMIT(answer)" in env.system_prompt() and "PYTHON" not in plain.system_prompt()
    assert ask(env, "print(sum(range(10)))") == "45"
    over = False
    while not over:
        turn = env.expert()
        assert turn == plain.expert()
        got, want = env.step(turn), plain.step(turn)
        assert got[:4] == want[:4]
        over = got[2] or got[3]
    assert got[4]["success"] is True


@pytest.mark.parametrize(("tools", "want"), [("wiki python", 1.1), ("wiki", 1.0), ("python", 1.0), ("", 1.0)])
def test_both_tools_earn_the_bonus_of_the_hierarchical_reward(small: WikiConfig, tools: str, want: float) -> None:
    settings = asdict(small) | {"outcome": OutcomeScore.HIERARCHICAL}
    env = WikiPythonEnv(WikiPythonConfig(**settings, python_sandbox="namespace"))
    env.reset(options={"task": env.tasks("train")[0]})
    if "wiki" in tools:
        env.step("<action>SEARCH(mayor)</action>")
    if "python" in tools:
        ask(env, "print(1)")
    _, reward, _, _, info = env.step(f"<action>SUBMIT({env.task.data.accepted[0]})</action>")
    assert reward == pytest.approx(want), info["reason"]


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"python_sandbox": "jail"}, "unknown python_sandbox 'jail': use auto, namespace, "),
        ({"python_seconds": 99.0}, "python_seconds must be from 0.1 to 20, not 99.0"),
        ({"pages": 3}, "wiki: pages must be from 20 to 150, not 3"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        WikiPythonConfig(**settings)
    assert str(refusal.value).startswith(line)


def test_the_verb_stands_before_the_last() -> None:
    grammar = with_python(Grammar(Verb("A", ""), Verb("SUBMIT", "")))
    assert [verb.name for verb in grammar.verbs] == ["A", "PYTHON", "SUBMIT"]
