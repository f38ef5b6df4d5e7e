"""A check of a transcript's format: thoughts, tool calls with their results, one boxed answer.

Invariant: pure functions. `read_strictly` looks at what the model wrote only, so nothing that a tool returns can make a
transcript wrong or right; `check_as_arpo` sees one text and repeats ARPO's checks with their looseness.

    <think> … </think> <search> … </search> [a tool's piece] … <answer> … \\boxed{…} … </answer>
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from agent_envs.boxed import boxed

TOOLS = ("search", "python")


@dataclass(frozen=True)
class Piece:
    """A run of a transcript with one author."""

    text: str
    by_model: bool = True
    """False: a tool wrote it."""


@dataclass(frozen=True)
class Form:
    """What the tags of a transcript tell."""

    wrong: str | None
    """What breaks the form, in one line; None when nothing does."""
    answer: str = ""
    """Text of the answer."""
    called: frozenset[str] = frozenset()
    """Tools with a call that was closed, and got its result before the answer."""


def read_strictly(transcript: Iterable[Piece], tools: Sequence[str] = TOOLS) -> Form:
    """Reads what the model wrote, tag by tag.

    Blocks are closed and not nested; a call is the last thing said before its result; results are the tools' to write;
    there is a thought, and exactly one answer, with a closed box in it, and nothing follows it.
    """
    tag_of = re.compile(rf"<(/?)({'|'.join(map(re.escape, ('think', 'answer', 'result', *tools)))})>")
    inside, waiting, answer = "", "", None
    thoughts, called = 0, set()
    for by_model, text in _merged(transcript):
        if not by_model:
            called |= {waiting} - {""}
            waiting = ""
            continue
        end = 0
        for tag in tag_of.finditer(text):
            closes, name = tag[1] == "/", tag[2]
            if name == "result":
                return Form("<result> is written by tools only")
            if answer is not None:
                return Form(f"{tag[0]} comes after the answer")
            if waiting:
                return Form(f"the call of {waiting} got no result before {tag[0]}")
            if closes != bool(inside) or (closes and name != inside):
                return Form(f"{tag[0]} comes where {f'</{inside}>' if inside else 'a block'} is expected")
            if closes and name == "answer":
                answer = text[end : tag.start()]
            inside = "" if closes else name
            waiting = name if closes and name in tools else ""
            thoughts += closes and name == "think"
            end = tag.end()
        if waiting and text[end:].strip():
            return Form(f"text follows the call of {waiting} before its result")
        if answer is not None and text[end:].strip():
            return Form("text follows the answer")
    if inside or waiting or answer is None:
        left = f"<{inside}> is not closed" if inside else f"the call of {waiting} got no result" if waiting else ""
        return Form(left or "there is no <answer>")
    if not thoughts:
        return Form("there is no <think>")
    try:
        boxed(answer)
    except ValueError as error:
        return Form(str(error))
    return Form(None, answer, frozenset(called))


def _merged(transcript: Iterable[Piece]) -> list[tuple[bool, str]]:
    """(by_model, text), the pieces of one author joined: a tag may be cut anywhere while it is sampled."""
    runs = groupby(transcript, key=lambda piece: piece.by_model)
    return [(by_model, "".join(piece.text for piece in pieces)) for by_model, pieces in runs]


def check_as_arpo(text: str, tools: Sequence[str] = TOOLS) -> str:
    """What is wrong with a whole text, "" for nothing, by the rules and in the words of ARPO's reward.

    It lets pass what `read_strictly` does not: calls that share a result, closing tags without an opening one,
    thoughts closed before they are opened, whatever follows the answer; and a tool can break it with its result.
    """
    opened, closed = text.count("<think>"), text.count("</think>")
    if opened != closed:
        return "<think> </think> not paired"
    if not opened:
        return "<think> or </think> not found"
    if text.count("<answer>") != 1 or text.count("</answer>") != 1:
        return "<answer> or </answer> not found"
    for tool in tools:
        cursor = 0
        while (call := text.find(f"<{tool}>", cursor)) >= 0:
            ends, result = text.find(f"</{tool}>", call), text.find("<result>", call)
            cursor = text.find("</result>", result) if result >= 0 else -1
            if min(ends, cursor) < 0:
                return f"{tool}/result tags are incomplete"
            if ends > result:
                return f"{tool}/result tags are nested in the wrong order"
    begin, end = text.find("<answer>"), text.find("</answer>")
    if begin > end:
        return "<answer> must be before </answer>"
    if "\\boxed{" not in text[begin:end] or "}" not in text[begin:end]:
        return "answer is missing \\boxed{} format"
    return ""
