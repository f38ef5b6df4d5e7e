"""Plays an environment by hand, with the same text that an agent gets.

    turnwise play --env wiki --split test

Invariant: between the headings stands what ``rollout.react`` gives a model, word for word: system prompt, task, then
the observation after each turn. Only characters that a terminal would obey or hide are written out, as ⟨U+001B⟩, and on
a terminal lines are broken between words. What is typed is the turn, word for word too.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    import runners

    runners.run("play")

import contextlib
import json
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from agent_envs import registry
from agent_envs.core import SPLITS, TextEnv
from agent_envs.ranges import check_name, check_ranges
from agent_envs.tools import Tool
from agents.text.tool_calls import HERMES
from runners.command_line.blame import blamed
from runners.command_line.errors import UserError
from runners.command_line.parse import parse

HELP = """\
One line is one turn, and reaches the environment as it was typed. An agent may say anything, so three things are set
apart by a colon at the beginning of a line:
  :help  this text               :hint  what the expert would say next
  :task  the beginning again     :undo  take the last turn back      :quit  stop
  :{     begins a turn of several lines (or an empty one), which a line :} ends
  ::…    says a line that begins with a colon: one colon is taken off
An empty line is not a turn."""


@dataclass(frozen=True)
class Play:
    """Play an environment by hand, with the same text that an agent gets."""

    env: str = "wiki"
    """Environment to play; its settings are the flags --ENV.…"""
    split: str = "test"
    """Split that a task is drawn from: train, valid or test."""
    task: str | None = None
    """Id of a task of any split; without it one is drawn."""
    seed: int | None = None
    """Seed of the draw and of the environment; without it every game differs."""
    tools: bool = False
    """Actions are calls of tools, as with --chat.tools on: {"name": …, "arguments": {…}} is one."""

    def __post_init__(self) -> None:
        check_name(self, "split", SPLITS)
        if self.seed is not None:
            check_ranges(self, seed=(0, 2**63 - 1))


def shown(text: str) -> str:
    """The text with every character written out that a terminal would obey, or that cannot be seen."""
    hidden = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return "".join(f"⟨U+{ord(c):04X}⟩" if unicodedata.category(c) in hidden and c not in "\n\t" else c for c in text)


@dataclass(frozen=True)
class Moment:
    """A state of the game that can be gone back to."""

    env: TextEnv
    observation: str
    reward: float = 0.0
    turns: int = 0


class Game:
    """One episode, played through ``read`` (a line without its end; EOFError when there are no more) and ``write``."""

    def __init__(self, env: TextEnv, read: Callable[[], str], write: Callable[[str], None]) -> None:
        self.env, self.read, self.write = env, read, write
        self.past: list[Moment] = []
        self.tools: Sequence[Tool] = ()
        self.info: Mapping[str, Any] = {}
        self.now: Moment
        self.system = ""

    def play(self, seed: int | None, options: Mapping[str, Any]) -> None:
        """Plays to the end, or until the person stops. Raises SettingsError for a task that there is not."""
        user, info = self.env.reset(seed=seed, options=dict(options))
        self.now = Moment(self.env, user)
        self.write(f"{self.env.name}, task {shown(info['task'])}; :help explains what can be typed\n")
        self.tools = info.get("tools", ())
        self.system = info["instructions"] if self.tools else self.env.system_prompt()
        self.begin(user)
        ended = "stopped"
        with contextlib.suppress(EOFError, KeyboardInterrupt):
            ended = self.turns()
        self.summary(ended)

    @property
    def left(self) -> int:
        """Turns that are left."""
        env = self.now.env
        return (env.max_turns if env.task_turns is None else env.task_turns) - self.now.turns

    def turns(self) -> str:
        """Turn after turn; returns how the episode ended."""
        while (text := self.turn()) is not None:
            self.past.append(Moment(self.now.env.fork(), *self._told()))
            observation, reward, terminated, truncated, self.info = self.now.env.step(self.said(text))
            self.now = Moment(self.now.env, observation, self.now.reward + reward, self.now.turns + 1)
            if terminated or truncated:
                # An agent never reads what comes with the end.
                return "terminated" if terminated else "truncated"
            self.show("observation", observation)
        return "stopped"

    def turn(self) -> str | None:
        """The next turn; None when the person wants to stop."""
        while True:
            line = self.read()
            if line.startswith("::"):
                return line[1:]
            if line == ":{":
                return self.several()
            if line == ":quit":
                return None
            if line.startswith(":"):
                self.command(line)
            elif line:
                return line

    def several(self) -> str:
        lines: list[str] = []
        while (line := self.read()) != ":}":
            lines.append(line[1:] if line.startswith("::") else line)
        return "\n".join(lines)

    def command(self, line: str) -> None:
        if line == ":help":
            self.write(f"{HELP}\n")
        elif line == ":hint":
            env = self.now.env
            self.write(f"hint: {shown(env.expert())}\n" if env.has_expert else "this environment has no expert\n")
        elif line == ":task":
            self.begin(self.now.env.task.prompt)
        elif line == ":undo" and self.past:
            self.now = self.past.pop()
            self.show("observation" if self.now.turns else "task", self.now.observation)
        elif line == ":undo":
            self.write("no turn has been played yet\n")
        else:
            self.write(f"no command {shown(line)}: :help names them; to say it, begin the line with ::\n")

    def begin(self, user: str) -> None:
        """Shows what an agent gets first. How tools are written is up to a model's chat template."""
        self.show("system", self.system)
        if self.tools:
            self.show("tools", "\n".join(json.dumps(tool, ensure_ascii=False) for tool in self.tools))
        self.show("task", user)

    def said(self, text: str) -> str:
        """The turn that was typed: where there are tools, an object is a call."""
        return HERMES.turn(f"<tool_call>{text}</tool_call>", self.tools) if self.tools and text[:1] == "{" else text

    def show(self, heading: str, text: str) -> None:
        self.write(f"── {heading} ──\n{shown(text)}\n")

    def summary(self, ended: str) -> None:
        success = self.info.get("success") if ended != "stopped" else None
        metrics = {**self.info.get("metrics", {})} if ended != "stopped" else {}
        verdict = {True: "yes", False: "no"}.get(success, "no verdict") if success is not None else "no verdict"
        numbers = "".join(f", {shown(name)} {value:g}" for name, value in metrics.items())
        self.write(f"── {ended} ──\nsuccess: {verdict}, reward {self.now.reward:g}, turns {self.now.turns}{numbers}\n")

    def _told(self) -> tuple[str, float, int]:
        return self.now.observation, self.now.reward, self.now.turns


def read_line(left: int) -> str:
    """A line from a person at a terminal, or from a script, whose lines are repeated so that the output reads whole.

    ``left`` is the number of turns that are left.
    """
    if sys.stdin.isatty():
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 (input() edits lines with it)
        return input(f"{left} turn{'s'[: left != 1]} left> ")
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    line = line.removesuffix("\n")
    print(f"> {shown(line)}")
    return line


def write(text: str) -> None:
    """Prints a text; on a terminal its lines are broken between words."""
    if sys.stdout.isatty():
        console = Console()
        text = "\n".join(line.rstrip(" ") for part in text.split("\n") for line in wrapped(part, console))
    print(text, flush=True)


def wrapped(line: str, console: Console) -> list[str]:
    """A line in pieces that fit, as wide as the characters are shown; an empty one is one piece."""
    return [str(piece) for piece in Text(line).wrap(console, console.width)] or [""]


def main() -> None:
    play, parts = parse(Play, lambda chosen: {chosen.env: registry.env_class(chosen.env).Config})
    if sys.stdin is None or sys.stdout is None:
        raise UserError("play needs a standard input and output")
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    env = registry.make(play.env, parts[play.env])
    try:
        game = Game(env, lambda: read_line(game.left), write)
        with blamed(play.env, "in play"):
            drawn = {"task": play.task} if play.task else {"split": play.split}
            game.play(play.seed, drawn | ({"tools": True} if play.tools else {}))
    finally:
        env.close()
