"""Programs, and the rooms that they are made of."""

import importlib.util
import logging
import sys
from pathlib import Path
from typing import NoReturn

from runners.command_line import deferred, errors, interrupts

_NEEDED = ("torch", "transformers", "peft", "gymnasium", "tantivy", "rapidfuzz", "tyro", "rich", "yaml", "matplotlib")

# peft imports bitsandbytes wherever it is installed, and that warns, whatever is run, of a kernel that is not.
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)


def check_install() -> None:
    """Defers heavy libraries; ends the program with one line when one is missing or another package hides ours.

    Until `run_program` runs, Ctrl-C ends it with one line, too.
    """
    interrupts.quit_at_once()
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        _stop(f"{', '.join(missing)} not installed: run `make install`, or `pip install -e .`, in this folder")
    here = Path(__file__).resolve().parent.parent
    for name in ("agent_envs", "agents", "algorithms"):
        spec = importlib.util.find_spec(name)
        result = Path(spec.origin).resolve().parent.parent if spec and spec.origin else None
        if result != here:
            _stop(
                f"the package {name!r} comes from {result}, not from {here}: another installed package has the "
                "same name (openai-agents does); use a virtual environment of its own"
            )
    deferred.install()


def run(program: str) -> NoReturn:
    """Runs ``runners/PROGRAM.py``, which was called by its path, as the module that it is, and ends the process."""
    check_install()
    errors.run_program(importlib.import_module(f"runners.{program}").main)
    sys.exit()


def _stop(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)
