"""Settings of served models that play. Imports no HTTP library: the command line shows them."""

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agent_envs.ranges import check_above_0, check_ranges


class ObservationRole(StrEnum):
    """Who says an observation in a conversation without tool calls."""

    USER = "user"
    TOOL = "tool"


@dataclass(frozen=True)
class ServedSettings:
    """How a served model is asked."""

    tools: bool = False
    """Send the environment's actions as tools and read tool calls; a reply without one is read as a text action."""
    concurrent: int = 20
    """Episodes that are played at once."""
    rate: float = 0.0
    """Most requests per minute; 0 for no limit of our own."""
    price_prompt: float = 0.0
    """Price of a million prompt tokens, in any currency."""
    price_completion: float = 0.0
    """Price of a million completion tokens."""
    body: str = ""
    """JSON object that is merged into every request; null leaves a field out. For example '{"max_tokens": null,
    "max_completion_tokens": 96}'. It is written down: no secrets."""
    observation_role: ObservationRole = ObservationRole.USER
    """Role of observations that answer no tool call: user, which every server takes, or tool."""
    prefill: bool = False
    """Begin the model's message with the environment's opening words, where it has some (math). Needs a server that
    continues a message, as vLLM does."""
    timeout: float = 120.0
    """Seconds that one request may take."""
    patience: float = 900.0
    """Seconds after which a request is given up, retries and waits included; the command then ends."""
    max_retries: int = 200
    """How often a failed request is repeated, each time after a longer wait."""

    def __post_init__(self) -> None:
        check_ranges(self, concurrent=(1, 1024), rate=0, max_retries=0, price_prompt=0, price_completion=0)
        check_above_0(self, "timeout", "patience")
        _ = self.extra

    @property
    def extra(self) -> dict[str, Any]:
        """The fields of `body`. Raises ValueError."""
        try:
            values = json.loads(self.body or "{}")
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            raise ValueError(f"body must be a JSON object, not {self.body!r:.80}")
        if ours := {"model", "messages", "tools", "stream", "n"} & set(values):
            raise ValueError(f"body cannot set {min(ours)}")
        return values
