"""The coding environment: literal episodes, what is refused and why, what is paid, and the contract."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_tasks import SmallEnv, repair, small

from agent_envs.actions import render
from agent_envs.code import judge
from agent_envs.code.config import CodeConfig
from agent_envs.code.env import CodeEnv
from agent_envs.code.reward import reward
from agent_envs.code.sandbox import SandboxFault
from agent_envs.code.task import CodeTask
from agent_envs.code.workspace import Workspace
from agent_envs.core import SettingsError, Task

REPAIR, SEVERAL = "small-train-0", "small-train-4"
"""A file with a bug, in English; two files, each with one, in English."""


def started(task: str | Task = REPAIR, **settings: Any) -> SmallEnv:
    env = small(**settings)
    env.reset(options={"task": task})
    return env


def do(env: SmallEnv, name: str, args: str = "", body: str | None = None) -> str:
    return env.step(render(name, args, "", body))[0]


def test_an_episode_word_for_word() -> None:
    env = small()
    text, info = env.reset(options={"task": REPAIR})
    assert text == "total adds up all numbers.\nmain.py: 5 lines\n1: total([]) == 0\n2: total([1, 2]) == 3"
    assert "forgeable" not in info and "submit within 16 turns" in env.system_prompt()
    shown = "def total(items):\n2|    found = 0\n3|    for item in items:\n4|        found -= item\n5|    return found"
    assert do(env, "VIEW") == f"main.py: 5 lines\n1|{shown}"
    assert do(env, "VIEW", "2:3") == "main.py: 5 lines, 2-3 shown\n2|    found = 0\n3|    for item in items:"
    assert (
        do(env, "SEARCH", "found")
        == "main.py:2|    found = 0\nmain.py:4|        found -= item\nmain.py:5|    return found"
    )
    assert do(env, "TEST") == "1: ok\n2: -3\n1 of 2 ok"
    edited = "edited\n3|    for item in items:\n4|        found += item\n5|    return found"
    assert do(env, "EDIT", "4", "        found += item\n") == edited
    assert do(env, "UNDO") == "undone: main.py" and do(env, "UNDO") == "nothing to undo"
    assert do(env, "REPLACE", "", "        found -= item\n=======\n        found += item\n") == edited
    assert do(env, "RUN", "", "no input is read\n") == "exit 0"
    assert (
        do(env, "CREATE", "try.py", "from main import total\nprint(total([int(input()), 2]))\n")
        == "created try.py: 2 lines"
    )
    assert do(env, "RUN", "try.py", "40\n") == "exit 0\n42"
    observation, earned, terminated, truncated, info = env.step(render("SUBMIT"))
    assert (observation, earned, terminated, truncated, info["success"]) == ("", 1.0, True, False, True)
    assert info["metrics"] == {"invalid": 0.0, "edits": 2.0, "tests": 1.0, "passed": 1.0, "undone": 1.0}


def test_an_episode_in_chinese() -> None:
    env = started("small-train-3")
    assert do(env, "查看", "1:2") == "main.py: 5行, 显示1-2\n1|def total(values):\n2|    found = 0"
    assert do(env, "测试") == "1: 对\n2: -3\n2个对了1个"
    assert do(env, "编辑", "5", "    return -found\n") == "未编辑: 请先 查看 第5-5行的现状"
    assert "格式" not in do(env, "编辑", "5") and env.step("编辑")[4]["error"] == "格式应为 名称(参数)"


def test_lines_must_have_been_seen_as_they_are_now() -> None:
    env = started()
    new = "        found += item\n"
    assert do(env, "EDIT", "4", new) == "not edited: VIEW lines 4-4 as they are now"
    do(env, "VIEW", "1:3")
    assert do(env, "EDIT", "3:4", new) == "not edited: VIEW lines 3-4 as they are now"
    assert do(env, "EDIT", "2:1", "    # one more\n").startswith("edited")  # every line below has another number now
    assert do(env, "EDIT", "4", "x\n") == "not edited: VIEW lines 4-4 as they are now"
    assert do(env, "EDIT", "3", "    found = 1\n").startswith("edited")  # it was shown with the edit
    do(env, "VIEW")
    assert do(env, "EDIT", "5", new).startswith("edited")  # the control
    assert do(env, "UNDO") == "undone: main.py"
    assert do(env, "EDIT", "5", new).startswith("edited")  # seen before, and the same again


def test_what_is_left_out_of_a_view_was_not_seen() -> None:
    env = started(output_tokens=40)
    do(env, "CREATE", "a.txt", "".join(f"{n} " + "x " * 100 + "\n" for n in range(5)))
    env._state = replace(env._state, now=Workspace(env._state.now.files))  # as if another had made it
    assert "more lines]" in do(env, "VIEW", "a.txt")
    assert do(env, "EDIT", "a.txt, 3", "y\n") == "not edited: VIEW lines 3-3 as they are now"
    do(env, "CREATE", "b.txt", "x\n" * 5)
    env._state = replace(env._state, now=Workspace(env._state.now.files))
    do(env, "VIEW", "b.txt")
    assert do(env, "EDIT", "b.txt, 3", "y\n").startswith("edited")  # the control


def test_a_new_syntax_error_is_not_taken_and_both_versions_are_shown() -> None:
    env = started()
    do(env, "VIEW")
    before = env._state.now
    assert do(env, "EDIT", "3:4", "    for item in items\n        found += item\n") == (
        "not edited: line 3: expected ':'\n"
        "as it is:\n3|    for item in items:\n4|        found -= item\n"
        "as it would be:\n3|    for item in items\n4|        found += item"
    )
    assert env._state.now == before
    do(env, "CREATE", "notes.py", "this is no Python\n")
    assert do(env, "EDIT", "notes.py, 1", "nor is this\n").startswith("edited")  # it is no new error
    do(env, "CREATE", "notes.txt", "x = 1\n")
    assert do(env, "EDIT", "notes.txt, 1", "if x\n").startswith("edited")


@pytest.mark.parametrize(
    ("name", "args", "body", "answer"),
    [
        ("VIEW", "other.py", None, "no such file, files: main.py"),
        ("VIEW", "9:12", None, "no such lines: main.py has 5"),
        ("EDIT", "5:9", "x\n", "no such lines: main.py has 5"),
        ("EDIT", "4", "        found -= item\n", "nothing changed"),
        ("REPLACE", "", "nothing like it\n=======\nx\n", "not found"),
        ("REPLACE", "", "found\n=======\nx\n", "not found"),  # whole lines only
        ("CREATE", "main.py", "x\n", "main.py is there already: use EDIT or REPLACE"),
        ("CREATE", "../main.py", "x\n", "../main.py cannot be the name of a file: take one like main.py"),
        ("CREATE", "/etc/passwd", "x\n", "/etc/passwd cannot be the name of a file: take one like main.py"),
        ("CREATE", "a/./b", "x\n", "a/./b cannot be the name of a file: take one like main.py"),
        ("CREATE", "main.py/x", "x\n", "main.py/x cannot be the name of a file: take one like main.py"),
        ("CREATE", "a\x07b", "x\n", "a\x07b cannot be the name of a file: take one like main.py"),
        ("CREATE", "x.py", "\ud800\n", "the text is not valid Unicode"),
        ("CREATE", "x.py", "x = 1\n" * 20000, "a file may have no more than 64 KiB"),
        ("RUN", "x.py", None, "no such file, files: main.py"),
        ("SEARCH", "nowhere", None, "not found"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said_and_changes_nothing(name: str, args: str, body: str | None, answer: str) -> None:
    env = started()
    do(env, "VIEW")
    before = env._state.now
    assert do(env, name, args, body) == answer and env._state.now == before


@pytest.mark.parametrize(
    ("turn", "error"),
    [
        (render("EDIT", "four", "", "x\n"), "say which lines, as in 3:5"),
        (render("EDIT", "4:2", "", "x\n"), "say which lines, as in 3:5"),
        (render("EDIT", "main.py, x", "", "x\n"), "lines look like 3:5"),
        (render("EDIT", "0:1", "", "x\n"), "say which lines, as in 3:5"),
        (render("REPLACE", "", "", "no separator\n"), "write the old lines, one line =======, and the new lines"),
        (render("EDIT", "4"), "EDIT needs lines below it, before </action>"),
        (render("BASH", "ls"), "unknown name"),
        (render("VIEW", "x" * 100_000 + ", 3:4"), None),
    ],
)
def test_arguments_that_cannot_be_read(turn: str, error: str | None) -> None:
    env = started()
    assert env.step(turn)[4]["error"] == error


def test_matches_must_be_unique() -> None:
    env = started()
    do(env, "CREATE", "x.txt", "a\nb\na\nb\na\n")
    assert do(env, "REPLACE", "x.txt", "a\n=======\nc\n") == "found 3 times, it must be once: give more lines"
    assert do(env, "REPLACE", "x.txt", "a\nb\n=======\nc\n") == "found 2 times, it must be once: give more lines"
    assert do(env, "REPLACE", "x.txt", "b\na\nb\n=======\nc\n") == "edited\n1|a\n2|c\n3|a"
    assert (
        do(env, "REPLACE", "x.txt", "a\nc\na\n=======\n") == "edited" and do(env, "VIEW", "x.txt") == "x.txt: no lines"
    )


def test_only_so_many_files() -> None:
    env = started(files=2)
    assert do(env, "CREATE", "a.py", "") == "created a.py: 0 lines"
    assert do(env, "CREATE", "b.py", "") == "there may be no more than 2 files"


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


# ---- what is paid ---------------------------------------------------------------------------------------------------
def ended(env: SmallEnv, *bodies: str) -> tuple[float, bool]:
    do(env, "VIEW")
    for body in bodies:
        do(env, "EDIT", "4", body)
    _, earned, terminated, _, info = env.step(render("SUBMIT"))
    assert terminated
    return earned, info["success"]


@pytest.mark.parametrize(
    ("body", "earned"),
    [
        ("        found += item\n", 1.0),
        ("        found -= item  # no change at all\n", 0.0),  # two of four passed before, and still do
        ("        found = item\n", 1 / 2),  # one more
        ("        found += 1\n", 0.0),  # one fewer
        ("        raise ValueError\n", 0.0),
    ],
)
def test_the_reward_is_the_share_of_what_was_wrong(body: str, earned: float) -> None:
    assert ended(started(), body) == (earned, earned == 1.0)


def test_submitting_without_an_edit_scores_nothing() -> None:
    assert ended(started()) == (0.0, False)
    env = started()
    do(env, "VIEW")
    do(env, "EDIT", "4", "        found += item\n")
    do(env, "UNDO")
    assert env.step(render("SUBMIT"))[1] == 0.0


def test_the_formula() -> None:
    assert [reward(passed, 4, lambda: 2) for passed in range(5)] == [0.0, 0.0, 0.0, 0.5, 1.0]
    assert [reward(passed, 4, lambda: 0) for passed in range(5)] == [0.0, 0.25, 0.5, 0.75, 1.0]
    with pytest.raises(ValueError, match="5 of 4 checks cannot pass"):
        reward(5, 4, lambda: 0)


def test_the_last_turn_is_judged_as_the_files_stand() -> None:
    env = started(turns=3)
    assert do(env, "VIEW").endswith("\n(2 turns left)")
    assert do(env, "EDIT", "4", "        found += item\n").endswith("\n(1 turn left)")
    text, earned, terminated, truncated, info = env.step(render("EDIT", "zzz", "", "x\n"))
    assert (text, earned, terminated, truncated, info["success"]) == ("", 1.0, True, False, True)


def test_an_agent_that_writes_no_action_is_cut_and_judged_as_well() -> None:
    env = started(turns=2, max_turns=4)
    do(env, "VIEW")
    do(env, "VIEW")  # the end: judged
    env = started(turns=3, max_turns=4)
    do(env, "VIEW")
    do(env, "EDIT", "4", "        found = item\n")
    assert env.step("no action")[1:4] == (0.0, False, False)
    _, earned, terminated, truncated, info = env.step("no action")
    assert (earned, terminated, truncated, info["success"], info["metrics"]["passed"]) == (
        0.5,
        False,
        True,
        False,
        0.75,
    )


def test_hidden_checks_and_the_solution_are_told_to_nobody() -> None:
    env = small()
    seen, info = env.reset(options={"task": REPAIR})
    over = False
    while not over:
        text, _, terminated, truncated, info = env.step(env.expert())
        seen, over = f"{seen}\n{text}\n{info}", terminated or truncated
    assert "total([5])" not in seen and "total([1, 2])" in seen


def test_a_fork_goes_its_own_way() -> None:
    env = started()
    do(env, "VIEW")
    twin = pickle.loads(pickle.dumps(env.fork()))
    do(twin, "EDIT", "4", "        found += item\n")
    assert env._state.now.files == dict(repair("item").files) != twin._state.now.files
    assert twin.step(render("SUBMIT"))[1] == 1.0 and env.step(render("SUBMIT"))[1] == 0.0


def test_a_verdict_that_can_be_forged_says_so() -> None:
    env = small(grader="in-process")
    cheat = "import os\nos._exit(0)\n"
    assert env.reset(options={"task": REPAIR})[1]["forgeable"] is True
    do(env, "VIEW")
    info = env.step(render("EDIT", "1:0", "", cheat))[4]
    assert info["forgeable"] is True
    assert env.step(render("SUBMIT"))[1] == 1.0  # so it must be marked
    env = started()
    do(env, "VIEW")
    do(env, "EDIT", "1:0", cheat)
    assert env.step(render("SUBMIT"))[1] == 0.0


def test_a_broken_sandbox_is_a_fault_and_neither_reward_nor_observation(monkeypatch: pytest.MonkeyPatch) -> None:
    env = started()
    do(env, "CREATE", "x.py", "unlike any other\n")

    def broken(*given: Any, **more: Any) -> Any:
        raise SandboxFault("the disk is gone")

    monkeypatch.setattr(judge, "run", broken)
    for name, args in (("RUN", "x.py"), ("TEST", ""), ("SUBMIT", "")):
        with pytest.raises(SandboxFault, match="the disk is gone"):
            do(env.fork(), name, args)


def played(env: SmallEnv, task: Task, flaw: float = 0.0, seed: int = 0) -> tuple[list[str], float, bool]:
    """Names of the expert's actions, what they earned, and the verdict."""
    rng = np.random.default_rng(seed)
    env.reset(options={"task": task})
    names: list[str] = []
    while True:
        turn = env.expert(flaw=flaw, rng=rng)
        _, earned, terminated, truncated, info = env.step(turn)
        assert not info["invalid"] and not truncated
        names.append(info["action"])
        if terminated:
            return names, earned, info["success"]


def test_the_expert_repairs_every_kind_of_task_and_looks_at_the_checks() -> None:
    env = small()
    for task in env.tasks("train")[:9]:
        names, earned, success = played(env, task)
        assert success and earned == 1.0 and len(names) >= 5
        assert names[-2:] == ["TEST", "SUBMIT"] and names.index("TEST") < names.index("EDIT")


def test_the_expert_leaves_out_looks_where_turns_are_few() -> None:
    env = small(turns=2)
    assert played(env, env.tasks("train")[0]) == (["VIEW", "EDIT"], 1.0, True)
    assert played(small(turns=1), env.tasks("train")[0])[1:] == (0.0, False)


def test_the_expert_takes_back_what_was_wrong() -> None:
    env = started()
    do(env, "VIEW")
    do(env, "EDIT", "2", "    found = 7\n")
    assert env.grammar.parse(env.expert()).name == "UNDO"
    do(env, "EDIT", "5", "    return item\n")
    do(env, "UNDO")
    do(env, "UNDO")
    assert env.grammar.parse(env.expert()).name == "EDIT"


def test_the_flawed_expert_tries_takes_back_and_gives_up() -> None:
    env = small()
    task = env.tasks("train")[0]
    runs = [played(env, task, 0.65, seed) for seed in range(20)]
    assert 2 <= sum(success for _, _, success in runs) <= 18
    assert any("UNDO" in names for names, _, _ in runs) and any(names.count("EDIT") > 2 for names, _, _ in runs)
    assert not any(success for names, _, success in runs if "EDIT" not in names)
    assert all(success for _, _, success in (played(env, task, 0.0, seed) for seed in range(3)))  # the control


# ---- what is refused ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"sandbox": "jail"}, "code: unknown sandbox 'jail': use auto, namespace, landlock, docker, unsafe-process"),
        ({"turns": 50}, "code: turns must be from 1 to 40, not 50"),
        ({"memory_mb": 8}, "code: memory_mb must be at least 64, not 8"),
        ({"skill": 1.0}, "code: skill must lie between 0 and 1, not 1.0"),
        ({"case_seconds": 0.0}, "code: case_seconds must be from 0.02 to 10, not 0.0"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        CodeConfig(**settings)
    assert str(refusal.value) == line


def test_a_task_without_checks_for_the_host_is_refused() -> None:
    data = CodeTask("do it", {"main.py": ""}, (), (), grader="import main")
    task = Task("odd", "train", "do it", data=data)
    with pytest.raises(SettingsError, match=r"task odd has no checks for the host: use --code\.grader in-process"):
        started(task)
    env = started(task, grader="in-process")
    do(env, "CREATE", "x.py", "")
    assert env.step(render("SUBMIT"))[1] == 1.0


_HERE = Path(__file__).parent
_PROJECT = next(folder for folder in _HERE.parents if (folder / "pyproject.toml").exists())


@pytest.mark.parametrize(
    ("lacks", "name", "said"),
    [
        ("user namespaces", "namespace", "make user namespaces"),
        ("landlock", "landlock", "this kernel has no Landlock"),
        ("user namespaces,landlock", "auto", "or choose docker"),
        ("nothing", "docker", "no docker engine answers"),
        ("temporary folder", "namespace", "no temporary folder can be written"),
    ],
)
def test_a_machine_without_a_sandbox_is_refused_in_one_line(lacks: str, name: str, said: str) -> None:
    if lacks == "temporary folder" and os.geteuid() != 0:
        pytest.skip("only root can make it so")
    if name == "docker":
        pytest.importorskip("docker")
    status, out, errors = program(lacks, name)
    assert status == 2 and out == "" and "Traceback" not in errors
    assert errors.splitlines()[-1].startswith("error: no sandbox: ") and said in errors.splitlines()[-1], errors


def test_control_a_machine_that_lacks_nothing_is_not_refused() -> None:
    assert program("nothing", "auto")[:2] == (0, "namespace\n")


def program(lacks: str, name: str) -> tuple[int, str, str]:
    """Exit status, output and errors of a program that prepares the environment where something is missing."""
    paths = os.pathsep.join(map(str, (_HERE, _HERE / "sandbox", _PROJECT)))
    done = subprocess.run(
        [sys.executable, str(_HERE / "refused_env.py"), lacks, name],
        capture_output=True, text=True, timeout=120, cwd="/",
        env={**os.environ, "PYTHONPATH": paths, "DOCKER_HOST": "unix:///nowhere/docker.sock"},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


# ---- what a small model learns from ---------------------------------------------------------------------------------
def test_the_words_that_a_tokenizer_keeps_whole() -> None:
    env = CodeEnv(CodeConfig(sandbox="namespace"))
    words = env.lexicon()
    assert len(words) == len(set(words)) and words == CodeEnv(CodeConfig(sandbox="namespace")).lexicon()
    for language in ("en", "zh"):
        task = next(task for task in env.tasks("train")[:20] if task.language == language)
        env.reset(options={"task": task})
        assert env.system_prompt() in words
    assert {"    ", " += ", "return ", "<think></think><action>VIEW()</action>", "</think><action>编辑("} <= set(words)
    assert not any(len(word) == 1 and word.isalpha() for word in words)  # it would cut the others


def test_the_exercise_is_to_write_lines_as_they_are() -> None:
    env = small()
    task = env.tasks("train")[0]
    drill = env.drill(task, np.random.default_rng(0))
    assert drill is not None
    text, exercises = drill
    assert text.startswith("main.py: 5 lines\n1|def total(items):\n2|    found = 0") and len(exercises) == 4
    for given, rest in exercises:
        action = env.grammar.parse(given + rest)
        line = text.split("\n")[int(action.args)]
        assert given.endswith(f"{action.args}|") and action.thought == line and action.body == f"{line[2:]}\n"
