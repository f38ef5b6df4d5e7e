"""Settings of the chat, and the shadow prompt. Imports no tokenizer: the command line needs them."""

from dataclasses import dataclass

CRITIC_TEXT = "Critic Mode! Evaluate the current state with a single expressive word:"
"""The shadow prompt of Self-AC [Self-AC slides]."""


@dataclass(frozen=True)
class ChatSettings:
    """How conversations are written."""

    tool_role: str = "tool"
    """Role of observations; templates without it get them as user messages."""
