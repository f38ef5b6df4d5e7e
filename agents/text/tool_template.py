"""How a chat template writes calls of tools and their results, read off its own renderings.

Invariant: a family's format is chosen only where its reader reads back exactly the call that the template wrote.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from agents.text.errors import ChatError
from agents.text.messages import SEEN, USER, Message, Messages, Render
from agents.text.tool_calls import FORMATS, Call, Format

CALL_ID = "000000000"
"""The number of every call, where a template writes one; some take nine characters only."""
_NAME = "LOOK_AROUND"
_ARGUMENTS = {
    "argument": "a \"b\" \\ \\n {c} [d], é 日本 🙂\n<e>f</e> ``` </tool_call> [/TOOL_CALLS] 'g'",
    "lines": "  1\n\n\t2",
}
_PARAMETERS = {"type": "object", "properties": {}, "required": []}
PROBE: Sequence[dict[str, Any]] = (
    {"type": "function", "function": {"name": _NAME, "description": "Look.", "parameters": _PARAMETERS}},
)
"""Tools that the template is read with before an environment gives its own."""


@dataclass(frozen=True)
class CallFrame:
    """How a template writes a turn that is a call."""

    format: Format
    message: Message
    """The call."""
    text: str
    """How the template writes it."""
    role: str
    """Of the result."""
    before: str
    """From the end of a call to the start of its result; begins as an answer ends."""
    after: str

    def result(self, content: str) -> Message:
        return _result(self.role, content)


def read_calls(render: Render, start: Messages, opened: str, ends: Collection[str], roles: Sequence[str]) -> CallFrame:
    """``opened`` is what opens an answer; ``ends`` are tokens of which the first possible one closes it. Raises
    ChatError."""
    shown = False
    for role in dict.fromkeys(roles):
        for message in _messages():
            # What a template writes last it may write in another way than what is past.
            head, found, after = (render([*start, message, _result(role, SEEN)]) or "").partition(SEEN)
            written = head.rpartition(USER)[2]
            shown |= _NAME in written
            for end in ends if found and SEEN not in after else ():
                text, closed, before = written[_shared(written, opened) :].rpartition(end)
                form = next((form for form in FORMATS if closed and _reads(form, text)), None)
                if form and _NAME not in before + after:
                    return CallFrame(form, message, text, role, end + before, after)
    if not shown:
        raise ChatError("the chat template writes no calls of tools: leave out --chat.tools")
    known = ", ".join(form.name for form in FORMATS)
    raise ChatError(
        f"the chat template writes calls of tools, or their results, in a format that is not known here (known are "
        f"{known}): leave out --chat.tools"
    )


def _messages() -> Iterator[Message]:
    """The call as templates want it: with arguments by name, or with their JSON."""
    for arguments in (_ARGUMENTS, json.dumps(_ARGUMENTS, ensure_ascii=False)):
        call = {"id": CALL_ID, "type": "function", "function": {"name": _NAME, "arguments": arguments}}
        yield {"role": "assistant", "content": "", "tool_calls": [call]}


def _reads(form: Format, text: str) -> bool:
    found = form.find(text)
    return found is not None and found[1] == [Call(_NAME, _ARGUMENTS)] and not found[2].strip()


def _shared(a: str, b: str) -> int:
    """How many characters two texts begin with in common."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


def _result(role: str, content: str) -> Message:
    return {"role": role, "content": content, "tool_call_id": CALL_ID, "name": _NAME}
