"""Settings of the chat, and the shadow prompt. Imports no tokenizer: the command line needs them."""

import datetime
from dataclasses import dataclass
from enum import StrEnum

CRITIC_TEXT = "Critic Mode! Evaluate the current state with a single expressive word:"
"""The shadow prompt of Self-AC [Self-AC slides]."""


class Thinking(StrEnum):
    """Whether a model that can think before it answers does so."""

    DEFAULT = "default"
    ON = "on"
    OFF = "off"


class Tools(StrEnum):
    """Whether actions are calls of functions."""

    OFF = "off"
    ON = "on"


@dataclass(frozen=True)
class ChatSettings:
    """How conversations are written."""

    tool_role: str = "tool"
    """Role of observations; templates without it get them as user messages."""
    thinking: Thinking = Thinking.DEFAULT
    """The template's switch for thinking (enable_thinking): on, off, or as the template has it."""
    tools: Tools = Tools.OFF
    """on: the environment's actions are tools, which the template shows in its own way, and the model calls them in its
    family's format; a turn without a call is read as a text action."""
    date: str = "2026-01-01"
    """The date that some templates write into the system message; fixed, so that a run repeats on another day."""

    def __post_init__(self) -> None:
        try:
            datetime.date.fromisoformat(self.date)
        except ValueError:
            raise ValueError(f"date must be written as 2026-01-31, not {self.date!r}") from None
