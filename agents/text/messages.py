"""Conversations as chat templates get them, with contents that are found again in what templates write."""

from collections.abc import Callable, Sequence
from typing import Any

Message = dict[str, Any]
Messages = Sequence[Message]
Render = Callable[[Messages], str | None]
"""A conversation, with the beginning of the next answer, as text; None where the template refuses it."""


def mark(name: str) -> str:
    """A content that is found again unless the template changes contents, as JSON would."""
    return f'\ue000{name} "\n<\ue001'


SYSTEM, USER, ANSWER, SEEN, ASKED = (mark(name) for name in ("s", "u", "a", "o", "c"))


def said(role: str, content: str) -> Message:
    return {"role": role, "content": content}
