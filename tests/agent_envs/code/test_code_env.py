"""The coding environment: literal episodes, what is refused and why, and forks."""

import pickle
from dataclasses import replace

import pytest
from small_tasks import REPAIR, do, repair, small, started

from agent_envs.actions import render
from agent_envs.code.workspace import Workspace


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
        ("REPLACE", "", "found\n=======\nx\n", "found 3 times, must be once: give more, or its line"),
        ("REPLACE", "", " \n=======\nx\n", "not found"),
        ("REPLACE", "3", "return\n=======\nx\n", "not found\n5|    return found"),
        ("REPLACE", "3:4", "item\n=======\nx\n", "found 3 times, must be once: give more, or its line"),
        ("REPLACE", "4:6", "found\n=======\nx\n", "no such lines: main.py has 5"),
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


def test_a_part_of_the_text_is_replaced_where_it_stands_once() -> None:
    env = started()
    edited = "edited\n3|    for item in items:\n4|        found += item\n5|    return found"
    assert do(env, "REPLACE", "", "found -=\n=======\nfound +=\n") == edited
    assert do(env, "REPLACE", "", "in items:\n        found\n=======\nin items[1:]:\n        found\n").startswith(
        "edited\n2|"
    )
    assert do(env, "REPLACE", "", "[1:]\n=======\n").startswith("edited")
    assert do(env, "VIEW") == "main.py: 5 lines\n1|def total(items):\n2|    found = 0\n" + edited[7:]
    assert do(env, "REPLACE", "", "found = 0\n=======\nfound = (\n").startswith(
        "not edited: line 2: '(' was never closed"
    )
    do(env, "CREATE", "x.txt", "aaa b\nb\n")
    assert do(env, "REPLACE", "x.txt", "aa\n=======\nc\n") == "found 2 times, must be once: give more, or its line"
    assert do(env, "REPLACE", "x.txt", "b\n=======\nc\n") == "edited\n1|aaa b\n2|c"  # a whole line goes first


def test_a_text_is_replaced_in_the_lines_that_are_named() -> None:
    env = started()
    assert do(env, "REPLACE", "4", "-\n=======\n+\n") == "not edited: VIEW lines 4-4 as they are now"
    do(env, "VIEW", "4:5")
    edited = "edited\n3|    for item in items:\n4|        found += item\n5|    return found"
    assert do(env, "REPLACE", "4", "-\n=======\n+\n") == edited
    assert do(env, "UNDO") == "undone: main.py"
    assert do(env, "REPLACE", "main.py, 4:5", "        found -= item\n=======\n        found += item\n") == edited
    assert do(env, "UNDO") == "undone: main.py"
    assert do(env, "REPLACE", "4", " -= item\n=======\n +=\\\n        item\n").startswith("edited\n3|")
    do(env, "CREATE", "x.txt", "a\nb\na b\na b")
    assert do(env, "REPLACE", "x.txt, 4", "a\n=======\nc\n") == "edited\n3|a b\n4|c b"
    assert do(env, "REPLACE", "x.txt, 1:3", "b\n=======\nc\n") == "edited\n1|a\n2|c\n3|a b"  # a whole line goes first


def test_what_is_not_there_is_shown_where_it_is() -> None:
    env = started()
    do(env, "VIEW", "1:4")
    assert (
        do(env, "REPLACE", "2", "item\n=======\nother\n")
        == "not found\n1|def total(items):\n3|    for item in items:\n4|        found -= item"
    )
    assert do(env, "REPLACE", "2", "nowhere\n=======\nother\n") == "not found"
    assert do(env, "REPLACE", "2", "item\nin\n=======\nother\n") == "not found"  # of lines nothing is said
    assert do(env, "REPLACE", "2", "return\n=======\nother\n") == "not found\n5|    return found"
    assert do(env, "EDIT", "5", "    return 0\n").startswith("edited")  # it was seen
    do(env, "CREATE", "x.txt", "a b\n" * 9 + "c")
    assert do(env, "REPLACE", "x.txt, 10", "a\n=======\nc\n") == "not found\n 1|a b\n 2|a b\n 3|a b"


def test_matches_must_be_unique() -> None:
    env = started()
    do(env, "CREATE", "x.txt", "a\nb\na\nb\na\n")
    assert do(env, "REPLACE", "x.txt", "a\n=======\nc\n") == "found 3 times, must be once: give more, or its line"
    assert do(env, "REPLACE", "x.txt", "a\nb\n=======\nc\n") == "found 2 times, must be once: give more, or its line"
    assert do(env, "REPLACE", "x.txt", "b\na\nb\n=======\nc\n") == "edited\n1|a\n2|c\n3|a"
    assert (
        do(env, "REPLACE", "x.txt", "a\nc\na\n=======\n") == "edited" and do(env, "VIEW", "x.txt") == "x.txt: no lines"
    )


def test_only_so_many_files() -> None:
    env = started(files=2)
    assert do(env, "CREATE", "a.py", "") == "created a.py: 0 lines"
    assert do(env, "CREATE", "b.py", "") == "there may be no more than 2 files"


def test_a_fork_goes_its_own_way() -> None:
    env = started()
    do(env, "VIEW")
    twin = pickle.loads(pickle.dumps(env.fork()))
    do(twin, "EDIT", "4", "        found += item\n")
    assert env._state.now.files == dict(repair("item").files) != twin._state.now.files
    assert twin.step(render("SUBMIT"))[1] == 1.0 and env.step(render("SUBMIT"))[1] == 0.0
