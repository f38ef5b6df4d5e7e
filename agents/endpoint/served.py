"""A served model that plays: a conversation in, its next message out.

Invariant: nothing in a reply is trusted. Texts hold no half surrogate pairs and no key of usual length, calls are few,
and their ids are ours; what is no chat completion is asked for again and never guessed.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agents.endpoint.client import READY, Bill, Client, EndpointError, Failed, Limits
from agents.endpoint.client import count as count
from agents.endpoint.settings import ServedSettings

Message = dict[str, Any]
MOST_CALLS = 16
"""Calls of a message that are read; one is allowed."""
_TOO_LONG = (
    "context_length_exceeded",
    "maximum context length",
    "context length is only",
    "context size",
    "longer than the maximum model length",
    "longer than the model's context length",
    "reduce the length of the input",
)
"""What servers say, in small letters, of a conversation that does not fit."""
_LEAST_KEY = 8
"""Characters from which on a key is looked for in what a model says: a shorter one is a stand-in, and may be a word."""


@dataclass(frozen=True)
class Call:
    """A tool call as the model wrote it."""

    name: str
    arguments: str
    """JSON, if the model wrote some."""


@dataclass(frozen=True)
class Reply:
    """The model's message."""

    text: str
    calls: tuple[Call, ...] = ()
    cut: bool = False
    """It was as long as it may be, and is not at its end."""
    prompt_tokens: int = 0
    completion_tokens: int = 0


class NoReply(Exception):  # noqa: N818
    """The endpoint will never answer this conversation; the text says why in a word."""


@dataclass(frozen=True)
class Question:
    """A conversation that waits for its next message."""

    messages: Sequence[Message]
    max_tokens: int
    temperature: float
    seed: int
    tools: Sequence[Mapping[str, Any]] = ()
    continues: bool = False
    """The last message is the beginning of the model's own."""


class ServedModel(Client):
    """A model at ``url`` by ``name``. Raises EndpointError for a key or an address that cannot be used."""

    def __init__(
        self,
        url: str,
        name: str,
        settings: ServedSettings,
        environ: Mapping[str, str] = os.environ,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self.name, self.settings = name, settings
        limits = Limits(settings.timeout, settings.patience, settings.max_retries, settings.rate)
        super().__init__(url, limits, environ, sleep)

    @property
    def bill(self) -> Bill:
        """What was asked so far."""
        return self._bill

    def check(self) -> None:
        """Makes one short request. Raises EndpointError where nobody answers."""
        self.check_reachable(self._body(Question(READY, 16, 0.0, 0)), self._reply)

    def reply(self, question: Question, chance: Callable[[int], float]) -> Reply:
        """Raises NoReply, and EndpointError where the endpoint cannot be asked any more."""
        try:
            return self.ask(self._body(question), self._reply, chance)[0]
        except Failed as failed:
            if failed.inspected:
                raise NoReply("inspected") from None
            if any(words in str(failed).lower() for words in _TOO_LONG):
                raise NoReply("context") from None
            how = f"did not answer in {failed.tries} tries" if failed.again else "refuses a request"
            raise EndpointError(f"{self.who} at {self.address} {how} ({failed})") from None

    def _body(self, question: Question) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.name,
            "messages": [_clean(message) for message in question.messages],
            "temperature": question.temperature,
            "max_tokens": question.max_tokens,
            "seed": question.seed,
        }
        if question.tools:
            body["tools"] = list(question.tools)
        if question.continues:
            body |= {"add_generation_prompt": False, "continue_final_message": True}
        body |= self.settings.extra
        return {key: value for key, value in body.items() if value is not None}

    def _reply(self, values: dict[str, Any]) -> Reply:
        choice, usage = values["choices"][0], values.get("usage") or {}
        message = choice["message"]
        asked = (message.get("tool_calls") or []) if self.settings.tools else []
        if not isinstance(asked, list):
            raise TypeError
        return Reply(
            self._text(message.get("content") or ""),
            tuple(self._call(call["function"]) for call in asked[:MOST_CALLS]),
            choice.get("finish_reason") == "length",
            *(count(usage.get(name)) for name in ("prompt_tokens", "completion_tokens")),
        )

    def _call(self, function: Any) -> Call:
        arguments = function.get("arguments")
        return Call(
            self._text(function["name"]),
            self._text(arguments if isinstance(arguments, str) else json.dumps(arguments)),
        )

    def _text(self, text: Any) -> str:
        """A text of the server's. Raises TypeError for anything else."""
        if not isinstance(text, str):
            raise TypeError
        text = whole(text)
        return self._without_key(text) if len(self._key) >= _LEAST_KEY else text


def whole(text: str) -> str:
    """A text that can be encoded: half surrogate pairs become U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _clean(message: Message) -> Message:
    return {key: whole(value) if isinstance(value, str) else value for key, value in message.items()}
