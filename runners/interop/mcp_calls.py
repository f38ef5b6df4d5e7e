"""The calls by which an agent plays episodes over MCP. Knows nothing of the protocol."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent_envs.core import SettingsError, TextEnv
from runners.command_line.errors import UserError
from runners.interop.episodes import Episodes, NotRunning

BEGIN = "begin_episode"
_TOOL = {
    "type": "function",
    "function": {
        "name": BEGIN,
        "description": "Begin an episode: returns the task. One that is running ends unfinished.",
        "parameters": {
            "type": "object",
            "properties": {
                "task": {"type": "string", "description": "id of a task; by default one is drawn"},
            },
            "required": [],
        },
    },
}


@dataclass(frozen=True)
class Reply:
    """What a call is answered with."""

    text: str
    """What an agent reads."""
    episode: Mapping[str, Any]
    """Numbers for programs: reward of the turn, whether it is over, the verdict; empty for a call that was refused."""
    refused: bool = False


class Calls:
    """Calls that play episodes of ``env``, whose tasks are drawn from ``split``. The first draw comes from ``seed``.

    Raises UserError for an environment without actions that could be tools.
    """

    def __init__(self, env: TextEnv, split: str, seed: int | None) -> None:
        if not env.grammar.verbs:
            raise UserError(f"the environment {env.name} has no actions that could be tools")
        if any(verb.name == BEGIN for verb in env.grammar.verbs):
            raise UserError(f"the environment {env.name} has an action called {BEGIN}, which is the server's own tool")
        self.env, self._split = env, split
        shown = Episodes(env, calls=True)
        shown.begin(split=split, seed=seed)
        self.tools: list[dict[str, Any]] = [_TOOL, *shown.tools]
        self.instructions = shown.instructions
        self._episodes = Episodes(env, calls=True)

    def call(self, name: str, arguments: Mapping[str, Any]) -> Reply:
        """Answers a call. What cannot be done is a refusal, and changes nothing."""
        return self.begin(arguments) if name == BEGIN else self.act(name, arguments)

    def begin(self, arguments: Mapping[str, Any]) -> Reply:
        task = arguments.get("task")
        if set(arguments) - {"task"} or not (task is None or isinstance(task, str)):
            return Reply(f"{BEGIN} takes the id of a task, or nothing", {}, refused=True)
        try:
            text = self._episodes.begin(task, split=None if task else self._split)
        except SettingsError as error:
            return Reply(str(error), {}, refused=True)
        return Reply(text, {"task": self._episodes.task, "over": False})

    def act(self, name: str, arguments: Mapping[str, Any]) -> Reply:
        if name not in {tool["function"]["name"] for tool in self.tools}:
            return Reply(f"there is no tool {name!r}", {}, refused=True)
        try:
            turn = self._episodes.call(name, arguments)
        except NotRunning as error:
            return Reply(f"{error}: call {BEGIN}", {}, refused=True)
        numbers = {
            "reward": turn.reward, "over": turn.over, "truncated": turn.truncated,
            "success": turn.success, "invalid": turn.invalid,
        }  # fmt: skip
        ended = f"The episode is over: {'success' if turn.success else 'no success'}." if turn.over else ""
        return Reply("\n".join(part for part in (turn.text, ended) if part), numbers)
