"""Trains an agent: play episodes, turn them into trees, descend the algorithm's loss, and again.

    python runners/train.py --env wiki --algo selfac
    python runners/train.py --resume runs/wiki-selfac-0-…      # goes on where a stopped run was

Read ``training/run.py`` for the loop. Everything a run records is in its folder: the resolved settings, versions,
``metrics.jsonl``, ``episodes.jsonl``, ``ledger.jsonl``, TensorBoard files, ``curve.png``, ``summary.json`` and the
checkpoints.
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
import json
import time
from collections.abc import Sequence
from dataclasses import replace

import torch
from rich.console import Console

from runners.config import UserError, dump_json, run_program
from runners.folder import open_run_folder
from runners.runs import BASE, CONFIG, locate, read_run
from runners.settings import RunSettings, Train, read_settings
from runners.training import checkpoint
from runners.training.interrupts import Stopped
from runners.training.report import versions
from runners.training.run import Training

VERSIONS = "versions.json"
RESUME = "--resume RUN, alone, goes on with a run that was stopped."


def begin(argv: Sequence[str], console: Console) -> Training:
    """The run that a command line names, new or resumed. Raises UserError."""
    if any(arg.partition("=")[0] == "--resume" for arg in argv):
        return resume(argv, console)
    settings = resolved(read_settings(argv, about=f"{Train.__doc__ or ''} {RESUME}"), console)
    train = settings.train
    torch.set_num_threads(train.threads)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    folder = open_run_folder(train.out or Path("runs") / f"{train.env}-{train.algo}-{train.seed}-{stamp}")
    console.print(f"run folder: {folder}", soft_wrap=True, highlight=False)
    training = Training(settings, folder, console)
    base = {"source": training.source, "fingerprint": training.reference}
    for name, text in ((CONFIG, settings.written()), (BASE, dump_json(base)), (VERSIONS, dump_json(versions()))):
        (folder / name).write_text(text, "utf-8")
    return training


def resolved(settings: RunSettings, console: Console) -> RunSettings:
    """The same settings, with the very checkpoints of the runs that they name."""
    train, judge = settings.train, settings.judge
    if train.init_from is not None:
        earlier, chosen = locate(train.init_from, console)
        settings = replace(settings, train=replace(train, init_from=chosen))
        if earlier.train.env != train.env:
            console.print(f"init-from: trained on {earlier.train.env!r}, goes on with {train.env!r}")
        elif earlier.settings.env != settings.env:
            console.print(f"init-from: trained on {train.env!r} with other settings")
    if judge is not None and judge.run is not None:
        settings = replace(settings, judge=replace(judge, run=locate(judge.run, console)[1]))
    return settings


def resume(argv: Sequence[str], console: Console) -> Training:
    """The run named by ``--resume``, from its newest sound checkpoint."""
    flag, joined, value = argv[0].partition("=")
    words = [flag, value, *argv[1:]] if joined else list(argv)
    if len(words) != 2 or flag != "--resume":
        raise UserError("--resume RUN stands alone: the run's own settings are in RUN/config.yaml")
    run = read_run(Path(words[1]))
    chosen = run.newest(console)
    if (run.folder / "summary.json").exists():
        raise UserError(f"{run.folder} has ended; a new run can begin from what it learned with --init-from")
    then, now = json.loads((run.folder / VERSIONS).read_text("utf-8")), versions()
    for name in (name for name in now if then.get(name) != now[name]):
        console.print(f"{name} was {then.get(name)}, is {now[name]}: the last bits may differ", highlight=False)
    console.print(f"going on from {chosen}", soft_wrap=True, highlight=False)
    torch.set_num_threads(run.train.threads)
    checkpoint.clear_unfinished(run.checkpoints)
    return Training(run.settings, run.folder, console, resume=chosen)


def main() -> None:
    with begin(sys.argv[1:], Console()) as training:
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
