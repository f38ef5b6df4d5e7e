"""The episodes that a client plays by calls of tools, one after the other. Knows nothing of the protocol."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent_envs.core import SettingsError, TextEnv
from agent_envs.tools import as_turn
from runners.command_line.errors import UserError

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


class Episodes:
    """Episodes of ``env``, whose tasks are drawn from ``split``. The first draw comes from ``seed``.

    Raises UserError for an environment without actions that could be tools.
    """

    def __init__(self, env: TextEnv, split: str, seed: int | None) -> None:
        if not env.grammar.verbs:
            raise UserError(f"the environment {env.name} has no actions that could be tools")
        if any(verb.name == BEGIN for verb in env.grammar.verbs):
            raise UserError(f"the environment {env.name} has an action called {BEGIN}, which is the server's own tool")
        self.env, self._split, self._seed = env, split, seed
        _, info = self._reset({"split": split})
        self.tools: list[dict[str, Any]] = [_TOOL, *info["tools"]]
        self.instructions: str = info["instructions"]
        self._over = True
        self._begun = False

    def call(self, name: str, arguments: Mapping[str, Any]) -> Reply:
        """Answers a call. What cannot be done is a refusal, and changes nothing."""
        return self.begin(arguments) if name == BEGIN else self.act(name, arguments)

    def begin(self, arguments: Mapping[str, Any]) -> Reply:
        task = arguments.get("task")
        if set(arguments) - {"task"} or not (task is None or isinstance(task, str)):
            return Reply(f"{BEGIN} takes the id of a task, or nothing", {}, refused=True)
        try:
            text, info = self._reset({"task": task} if task else {"split": self._split})
        except SettingsError as error:
            return Reply(str(error), {}, refused=True)
        self._over, self._begun = False, True
        return Reply(text, {"task": info["task"], "over": False})

    def act(self, name: str, arguments: Mapping[str, Any]) -> Reply:
        if name not in {tool["function"]["name"] for tool in self.tools}:
            return Reply(f"there is no tool {name!r}", {}, refused=True)
        if self._over:
            why = "the episode is over" if self._begun else "no episode was begun"
            return Reply(f"{why}: call {BEGIN}", {}, refused=True)
        text, reward, terminated, truncated, info = self.env.step(as_turn(self.tools[1:], name, arguments))
        self._over = terminated or truncated
        told = {
            "reward": reward, "over": self._over, "truncated": truncated,
            "success": info["success"], "invalid": info["invalid"],
        }  # fmt: skip
        ended = f"The episode is over: {'success' if info['success'] else 'no success'}." if self._over else ""
        return Reply("\n".join(part for part in (text, ended) if part), told)

    def _reset(self, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        seed, self._seed = self._seed, None
        return self.env.reset(seed=seed, options={**options, "tools": True})
