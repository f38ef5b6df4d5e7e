"""A run is begun in a fresh folder, or resumed from its newest sound checkpoint."""

import json
import time
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console

from runners.command_line.errors import UserError
from runners.command_line.plain import dump_json
from runners.run_folder import checkpoint
from runners.run_folder.folder import open_run_folder
from runners.run_folder.runs import BASE, CONFIG, locate, read_run
from runners.settings.run_settings import RunSettings
from runners.training.report import versions
from runners.training.run import Training

VERSIONS = "versions.json"


def begin(settings: RunSettings, console: Console) -> Training:
    """A new run. Raises UserError."""
    settings = resolved(settings, console)
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


def resume(folder: Path, console: Console) -> Training:
    """The run in ``folder``, from its newest sound checkpoint. Raises UserError."""
    run = read_run(folder)
    chosen = run.newest(console)
    if (run.folder / "summary.json").exists():
        raise UserError(f"{run.folder} has ended; a new run can begin from what it learned with --init-from")
    then, now = json.loads((run.folder / VERSIONS).read_text("utf-8")), versions()
    for name in (name for name in now if then.get(name) != now[name]):
        console.print(f"{name} was {then.get(name)}, is {now[name]}: the last bits may differ", highlight=False)
    console.print(f"resuming from {chosen}", soft_wrap=True, highlight=False)
    torch.set_num_threads(run.train.threads)
    checkpoint.clear_unfinished(run.checkpoints)
    return Training(run.settings, run.folder, console, resume=chosen)


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
