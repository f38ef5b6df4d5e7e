"""The command ``turnwise``: one word chooses a program, the rest of the line is the program's own.

``turnwise train …`` is the same program as ``python runners/train.py …``. Nothing heavy is imported before the word is
understood.
"""

import difflib
import sys
from importlib import import_module, metadata

import runners
from runners.command_line.errors import UserError, run_program
from runners.command_line.interrupts import raise_again

COMMANDS = {
    "train": ("runners.train", "train an agent with reinforcement learning"),
    "evaluate": ("runners.evaluate", "measure a model or a run on held-out tasks"),
    "bench": ("runners.bench", "measure one agent on a named suite of fixed tasks, in one row"),
    "compare": ("runners.compare", "train several algorithms on the same tasks and budget, and report verdicts"),
    "credit": ("runners.credit", "measure which actions algorithms credit, against the environment's oracle"),
    "view": ("runners.view", "write one HTML file of a run: curves, episodes, trees, tokens"),
    "export": ("runners.export", "write what a run learned for other programs: adapter or whole model, model card"),
    "play": ("runners.play", "play an environment yourself, with the text that an agent gets"),
    "serve-mcp": ("runners.serve_mcp", "serve an environment to any agent that speaks the Model Context Protocol"),
    "serve-openenv": ("runners.serve_openenv", "serve an environment to OpenEnv's clients"),
    "pretrain": ("runners.pretrain", "make the tiny model for an environment"),
    "new-env": (
        "runners.new_env",
        "write a package with a new environment that passes its tests and trains as it is",
    ),
    "list": ("runners.list_parts", "list environments, agents, algorithms, engines, judges and workers"),
    "doctor": ("runners.doctor", "report what this machine has, and how to add what is missing"),
}


def usage() -> str:
    """The text of ``turnwise --help``."""
    lines = ["usage: turnwise COMMAND [--FLAG VALUE …]", "", "Train LLM agents over many turns.", ""]
    lines += [f"  {name:<14}{about}" for name, (_, about) in COMMANDS.items()]
    return "\n".join([*lines, "", "turnwise COMMAND --help shows the flags of a command."])


def run_command() -> None:
    """Runs the program that the command line names. Raises UserError for an unknown word."""
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help"):
        print(usage())
        return
    if words[0] == "--version":
        print(f"turnwise {metadata.version('turnwise')}")
        return
    if words[0] not in COMMANDS:
        close = difflib.get_close_matches(words[0], COMMANDS, n=1)
        hint = f"did you mean {close[0]}?" if close else "turnwise --help lists the commands"
        raise UserError(f"unknown command {words[0]!r}: {hint}")
    sys.argv = [f"turnwise {words[0]}", *words[1:]]
    runners.check_install()
    program = import_module(COMMANDS[words[0]][0])
    raise_again()
    program.main()


def main() -> None:
    """The console script."""
    run_program(run_command)
