"""Served models of the tests: what they answer, on the server of the judges' tests."""

import json
from collections.abc import Callable
from typing import Any

from judge_server import Answer, Asked

KEY = "sk-4f\"not'hing\\else"


def completion(text: str | None, calls: list[Any] | None = None, finish: str = "stop", prompt: int = 10) -> Answer:
    """A chat completion of three tokens."""
    message = {"role": "assistant", "content": text} | ({} if calls is None else {"tool_calls": calls})
    body = {"choices": [{"message": message, "finish_reason": finish}]}
    return Answer(body=json.dumps(body | {"usage": {"prompt_tokens": prompt, "completion_tokens": 3}}).encode())


def call(name: str, arguments: str) -> dict[str, Any]:
    return {"id": "theirs", "type": "function", "function": {"name": name, "arguments": arguments}}


def heard(asked: Asked) -> str:
    """The newest observation."""
    return asked.body["messages"][-1]["content"]


def word(asked: Asked) -> str:
    return heard(asked).rpartition(" ")[2]


def say(asked: Asked, before: int = 0) -> Answer:
    """The identity environment, played rightly; by the seed of the request a third of the sampled words are wrong."""
    wrong = asked.body["temperature"] > 0 and asked.body["seed"] % 3 == 0
    return completion(f"<action>SAY({'nothing' if wrong else word(asked)})</action>")


def say_by_tool(asked: Asked, before: int = 0) -> Answer:
    return completion(None, [call("SAY", json.dumps({"word": word(asked)}))], "tool_calls")


Reply = Callable[[Asked, int], Answer]
