"""Trains an agent: play episodes, turn them into trees, descend the algorithm's loss, and again.

    turnwise train --env wiki --algo selfac
    turnwise train --resume runs/wiki-selfac-0-…      # goes on where a stopped run was

Read ``training/run.py`` for the loop. Everything a run records is in its folder: the resolved settings, versions,
``metrics.jsonl``, ``episodes.jsonl``, ``ledger.jsonl``, TensorBoard files, ``curve.png``, ``summary.json`` and the
checkpoints. Nothing heavy is imported before the command line is understood.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
import runners

if __name__ == "__main__":
    runners.check_install()

import gc
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from runners.command_line.errors import UserError, run_program
from runners.command_line.plain import dump_json
from runners.settings.run_settings import Train, read_settings

if TYPE_CHECKING:
    from runners.training.run import Training

RESUME = "--resume RUN, alone, resumes a stopped run."


def begin(argv: Sequence[str], console: Console) -> Training:
    """The run that a command line names, new or resumed. Raises UserError."""
    if any(arg.partition("=")[0] == "--resume" for arg in argv):
        flag, joined, value = argv[0].partition("=")
        words = [flag, value, *argv[1:]] if joined else list(argv)
        if len(words) != 2 or flag != "--resume":
            raise UserError("--resume RUN stands alone: the run's own settings are in RUN/config.yaml")
        from runners.training import start

        return start.resume(Path(words[1]), console)
    settings = read_settings(argv, about=f"{Train.__doc__ or ''} {RESUME}")
    from runners.training import start

    return start.begin(settings, console)


def main() -> None:
    with begin(sys.argv[1:], Console()) as training:
        from runners.training.interrupts import Stopped

        gc.collect()
        gc.freeze()  # what was made so far stays: later collections, which stop everything, need not look at it
        try:
            summary = training.run()
        except Stopped as stop:
            after = training.update
            print(f"stopped by {stop} after update {after}; go on with --resume {training.folder}", file=sys.stderr)
            sys.exit(stop.status)
    print(dump_json(summary, indent=None).strip())


if __name__ == "__main__":
    run_program(main)
