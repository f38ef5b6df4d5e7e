"""Plays an environment by hand, with the same text that an agent gets.

    turnwise play --env wiki --split test

Invariant: between the headings stands what ``rollout.react`` gives a model, word for word: system prompt, task, then
the observation after each turn; only characters that a terminal would obey or hide are written out, as ⟨U+001B⟩. What
is typed is the turn, word for word too.
"""

import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
import runners

if __name__ == "__main__":
    runners.check_install()

import contextlib
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agent_envs import registry
from agent_envs.core import TextEnv
from runners.command_line.errors import run_program
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
        self.info: Mapping[str, Any] = {}
        self.now: Moment

    def play(self, seed: int | None, options: Mapping[str, Any]) -> None:
        """Plays to the end, or until the person stops. Raises SettingsError for a task that there is not."""
        user, info = self.env.reset(seed=seed, options=dict(options))
        self.now = Moment(self.env, user)
        self.write(f"{self.env.name}, task {shown(info['task'])}; :help explains what can be typed\n")
        self.show("system", self.env.system_prompt())
        self.show("task", user)
        ended = "stopped"
        with contextlib.suppress(EOFError, KeyboardInterrupt):
            ended = self.turns()
        self.summary(ended)

    def turns(self) -> str:
        """Turn after turn; returns how the episode ended."""
        while (text := self.turn()) is not None:
            self.past.append(Moment(self.now.env.fork(), *self._told()))
            observation, reward, terminated, truncated, self.info = self.now.env.step(text)
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
            self.show("system", self.now.env.system_prompt())
            self.show("task", self.now.env.task.prompt)
        elif line == ":undo" and self.past:
            self.now = self.past.pop()
            self.show("observation" if self.now.turns else "task", self.now.observation)
        elif line == ":undo":
            self.write("no turn has been played yet\n")
        else:
            self.write(f"no command {shown(line)}: :help names them; to say it, begin the line with ::\n")

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


def read_line() -> str:
    """A line from a person at a terminal, or from a script, whose lines are repeated so that the output reads whole."""
    if sys.stdin.isatty():
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 (input() edits lines with it)
        return input("> ")
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    line = line.removesuffix("\n")
    print(f"> {shown(line)}")
    return line


def write(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    play, parts = parse(
        Play, lambda chosen: {chosen.env: registry.env_class(chosen.env).Config}, about=Play.__doc__ or ""
    )
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    env = registry.make(play.env, parts[play.env])
    try:
        Game(env, read_line, write).play(play.seed, {"task": play.task} if play.task else {"split": play.split})
    finally:
        env.close()


if __name__ == "__main__":
    run_program(main)
