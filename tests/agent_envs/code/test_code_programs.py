"""Programs that an agent runs: what it is shown and keeps of them, and who is blamed when none can be run."""

from typing import Any

import pytest
from small_tasks import do, started

from agent_envs.actions import render
from agent_envs.code import judge
from agent_envs.code.config import CodeConfig
from agent_envs.code.sandbox import SandboxFault
from agent_envs.core import SettingsError


def test_what_a_program_prints_and_writes() -> None:
    env = started(output_tokens=60)
    code = (
        "import os, sys\nprint(object())\nfor n in range(500): print('row', n)\nos.mkdir('d')\n"
        "open('d/made.txt', 'w').write('x\\n')\nos.remove('main.py')\nopen('b', 'wb').write(b'\\xff')\n"
        "os.symlink('/etc/passwd', 'link')\nopen('e\\nf', 'w').write('')\nsys.exit(f'no {object()}')\n"
    )
    do(env, "CREATE", "try.py", code)
    text = do(env, "RUN", "try.py")
    assert text.startswith("exit 1\n<object object at 0x…>\nrow 0\n") and "row 499\nerrors:\nno <object" in text
    assert " more lines]\n" in text and len(text) < 500
    assert text.endswith("\nchanged: main.py, d/made.txt\nnot kept: link, b, e\\nf")
    assert sorted(env._state.now.files) == ["d/made.txt", "try.py"]
    assert do(env, "UNDO") == "undone: d/made.txt, main.py" and sorted(env._state.now.files) == ["main.py", "try.py"]
    assert do(env, "RUN", "try.py") == text  # word for word, though it ran at another address


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("while True: pass\n", "timeout"),
        ("while True: print('x' * 999)\n", "too much output"),
        ("import os\nos.kill(os.getpid(), 9)\n", "ended by signal 9"),
        ("x = bytearray(1 << 30)\n", "exit 1"),
    ],
)
def test_programs_that_end_badly(code: str, answer: str) -> None:
    env = started(seconds=0.5)
    do(env, "CREATE", "try.py", code)
    assert do(env, "RUN", "try.py").startswith(answer)


def test_bash_is_offered_where_it_is_asked_for() -> None:
    env = started(bash=True)
    assert "BASH(command)" in env.system_prompt()
    assert (
        do(env, "BASH", "sed 's/-=/+=/' main.py > x; cat x > main.py; rm x; wc -l < main.py")
        == "exit 0\n5\nchanged: main.py"
    )
    assert env.step(render("SUBMIT"))[1] == 1.0
    with pytest.raises(SettingsError, match=r"code: bash needs --code\.sandbox namespace or docker, not auto"):
        CodeConfig(bash=True)


def test_a_broken_sandbox_is_a_fault_and_neither_reward_nor_observation(monkeypatch: pytest.MonkeyPatch) -> None:
    env = started()
    do(env, "CREATE", "x.py", "unlike any other\n")

    def broken(*given: Any, **more: Any) -> Any:
        raise SandboxFault("the disk is gone")

    monkeypatch.setattr(judge, "run", broken)
    for name, args in (("RUN", "x.py"), ("TEST", ""), ("SUBMIT", "")):
        with pytest.raises(SandboxFault, match="the disk is gone"):
            do(env.fork(), name, args)
