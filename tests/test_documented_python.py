"""The Python of README.md runs as it stands."""

import re
from pathlib import Path
from typing import Any

README = (Path(__file__).resolve().parent.parent / "README.md").read_text("utf-8")


def run(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), names)
    names["envs"].close()
    return names


def code_of(text: str) -> str:
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    return code


def test_ten_lines_play_an_episode_and_make_a_vector_environment() -> None:
    code = code_of(README)
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 11, "ten lines, and the import that registers"
    names = run(code)
    assert names["terminated"] and names["reward"] == 1.0 and names["info"]["success"]
    assert names["envs"].num_envs == 4


def test_another_agent_fails() -> None:
    code = code_of(README)
    assert code.count("env.unwrapped.expert()") == 1
    names = run(code.replace("env.unwrapped.expert()", '"<action>SUBMIT(nothing)</action>"'))
    assert names["terminated"] and names["reward"] == 0.0 and not names["info"]["success"]
