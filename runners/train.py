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

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    import runners

    runners.run("train")

import gc
import shlex
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console

from agent_envs import registry
from agent_envs.isolation.preparing import preparing
from agents.compiled import build
from agents.model.settings import Attention
from runners.command_line.errors import UserError, tell_once
from runners.command_line.interrupts import importing
from runners.command_line.program import command
from runners.settings.fitting import check_fit
from runners.settings.run_settings import read_settings
from runners.settings.train_settings import Train

if TYPE_CHECKING:
    from runners.training.run import Training

COLLECTED = 10_000, 10, 10
"""Objects after which garbage is looked for, and how often before older ones are: an update makes millions, of which
reference counts free nearly all."""
RESUME = "--resume RUN, alone, resumes a stopped run."


def begin(argv: Sequence[str], console: Console, *, beside: bool = False) -> Training:
    """The run that a command line names, new or resumed. ``beside``: what environments need is built beside the
    imports, by a process that pays where these take seconds. Raises UserError."""
    if any(arg.partition("=")[0] == "--resume" for arg in argv):
        flag, joined, value = argv[0].partition("=")
        words = [flag, value, *argv[1:]] if joined else list(argv)
        if len(words) != 2 or flag != "--resume":
            raise UserError("--resume RUN stands alone: the run's own settings are in RUN/config.yaml")
        with importing():
            from runners.training import start

        return start.resume(Path(words[1]), console)
    settings = read_settings(argv, about=f"{Train.__doc__ or ''} {RESUME}")
    check_fit(settings)
    on_cpu = not settings.train.device.startswith("cuda")
    if on_cpu and settings.train.attention in (Attention.AUTO, Attention.COMPILED):
        build.begin()
    makes = [partial(registry.env_class(name), config) for name, config in settings.env.items()]
    with preparing(makes) if beside else nullcontext():
        with importing():
            from runners.training import start

        return start.begin(settings, console, argv)


def main() -> None:
    tell_once()
    gc.disable()  # what a run imports and loads stays: to look through it again and again finds nothing
    try:
        begun = begin(sys.argv[1:], Console(), beside=True)
    finally:
        gc.enable()
    with begun as training:
        from runners.training.closing import closing
        from runners.training.interrupts import Stopped
        from runners.viewer.build import write_view

        gc.collect()
        gc.freeze()  # later collections, which stop everything, need not look at it either
        gc.set_threshold(*COLLECTED)
        try:
            summary = training.run()
        except Stopped as stop:
            after = training.update
            resume = f"{command('train')} --resume {shlex.quote(str(training.folder))}"
            print(f"stopped by {stop} after update {after}; go on with {resume}", file=sys.stderr)
            sys.exit(stop.status)
    page = write_view(training.folder)
    for line in closing(training.train, training.folder, summary, page):
        print(line)
