"""Pieces of the coding environment on any text: hunks, cut output, arguments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_envs.actions import ActionError
from agent_envs.code.arguments import file_and_range, old_and_new, text_and_file
from agent_envs.code.hunks import hunks, pieces, snippet
from agent_envs.code.view import cut, lines_of, numbered, occurrences, printed, text_of

LINES = st.lists(st.sampled_from(["a", "b", "    c", "", "d" * 30]), max_size=30)


@given(LINES, LINES)
def test_hunks_lead_from_one_text_to_the_other(before: list[str], after: list[str]) -> None:
    lines = list(before)
    for hunk in reversed(hunks(text_of(before), text_of(after))):
        assert 1 <= hunk.first <= hunk.last + 1 <= len(before) + 1
        lines[hunk.first - 1 : hunk.last] = hunk.lines
    assert lines == after


@given(LINES)
def test_lines_and_text_undo_each_other(lines: list[str]) -> None:
    assert lines_of(text_of(lines)) == lines
    rows = numbered(lines, 1, len(lines)).split("\n") if lines else []
    assert [row.split("|", 1)[1] for row in rows] == lines


@given(st.text(), st.integers(1, 50))
def test_what_is_cut_is_all_there_and_only_so_much_is_shown(text: str, most: int) -> None:
    head, middle, tail = cut(text, most)
    assert head + middle + tail == text
    if middle:
        assert cut(head, most)[1] == cut(tail, most)[1] == ""
    else:
        assert head == text


def test_whole_lines_are_kept_where_that_costs_little() -> None:
    text = "".join(f"line {n} of many\n" for n in range(100))
    head, middle, tail = cut(text, 60)
    assert head.endswith("\n") and tail.startswith("line ") and middle.count("\n") == 100 - (head + tail).count("\n")
    assert cut("x" * 1000, 20)[1] == "x" * 1000  # one long word is no text that could be shown in part


@given(LINES, LINES)
def test_occurrences_of_lines(lines: list[str], wanted: list[str]) -> None:
    found = [at for at in range(len(lines)) if wanted and lines[at : at + len(wanted)] == wanted]
    assert occurrences(lines, wanted) == ((found[0] + 1 if found else 0), len(found))


def test_output_has_no_addresses() -> None:
    assert printed(b"<f at 0x7f00aabb> \xff 0x10\r\n\n") == "<f at 0x…> \ufffd 0x10"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", ("main.py", None)),
        ("3", ("main.py", (3, 3))),
        ("3:5", ("main.py", (3, 5))),
        ("３－５", ("main.py", (3, 5))),
        ("a.py, 4:3", ("a.py", (4, 3))),
        ("a,b.py，7", ("a,b.py", (7, 7))),
        ("a.py", ("a.py", None)),
    ],
)
def test_a_file_and_a_range(text: str, want: tuple[str, tuple[int, int] | None]) -> None:
    assert file_and_range(text, {"main.py"}) == want


def test_the_file_must_be_named_where_there_are_several() -> None:
    with pytest.raises(ActionError, match="say which file"):
        file_and_range("3", {"a.py", "b.py"})
    assert text_and_file("x, a.py", {"a.py"}) == ("x", "a.py") and text_and_file("x, y", {"a.py"}) == ("x, y", None)


@pytest.mark.parametrize("body", ["", "a\n", "=======\nb\n", "a\n=======\nb\n=======\nc\n"])
def test_old_and_new_lines_are_parted_once(body: str) -> None:
    with pytest.raises(ActionError, match="write the old lines, one line ======="):
        old_and_new(body)
    assert old_and_new("a\n=======  \n") == ("a\n", "")


PROGRAM = "def f(a, b):\n    if a < b:\n        return a - b\n    return a - b\n"


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("a < b:", "a <= b:", (" < ", " <= ")),
        ("def f(a, b):", "def f(b, a):", ("a, b", "b, a")),
        ("        return", "        return not", ("return ", "return not ")),
        ("    return a - b\n    ret", "    return b\n    ret", ("a - ", "")),
        ("    return a - b", "    return b", ("a - ", "")),
        ("    if a < b:\n", "", None),
    ],
)  # fmt: skip
def test_the_part_that_is_changed_names_its_place(old: str, new: str, parts: tuple[str, str] | None) -> None:
    (hunk,) = hunks(PROGRAM, PROGRAM.replace(old, new, 1))
    found = snippet(PROGRAM, hunk)
    assert found == parts
    if found is not None:
        line = PROGRAM.split("\n")[hunk.first - 1]
        assert line.count(found[0]) == 1 and (line.replace(*found),) == hunk.lines


@given(st.text(alphabet="ab12 +=_(),:\t字"))
def test_nothing_of_a_line_is_lost_in_pieces(line: str) -> None:
    assert "".join(pieces(line)) == line
