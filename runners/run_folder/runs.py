"""Run folders that are read again: settings, newest sound checkpoint, and the base model.

Nothing heavy is imported until a model is asked for: a command line that names a run is understood without torch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from agent_envs import registry
from runners.command_line.errors import UserError
from runners.command_line.interrupts import importing
from runners.run_folder import checkpoint
from runners.settings.run_settings import RunSettings, read_settings
from runners.settings.train_settings import Train

if TYPE_CHECKING:
    from runners.loading.base_model import Base, BaseSpec

CONFIG, BASE = "config.yaml", "base.json"


@dataclass(frozen=True)
class SavedRun:
    """A run folder that was read."""

    folder: Path
    settings: RunSettings

    @property
    def train(self) -> Train:
        return self.settings.train

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def newest(self, console: Console) -> Path:
        """The newest sound checkpoint; damaged ones are named. Raises UserError when there is none."""
        return checkpoint.newest_sound(self.checkpoints, lambda line: console.print(line, soft_wrap=True, markup=False))

    def base(self, console: Console, device: str, dtype: str | None = None) -> Base:
        """The base model that the run was trained on. Raises UserError when it is another by now."""
        with importing():
            from runners.loading.base_model import load_base

        base = load_base(base_of(self.settings, console, device, dtype), console)
        self.check(base)
        return base

    def check(self, base: Base) -> str:
        """The fingerprint by which the run knows ``base``. Raises UserError when it was trained on another model."""
        try:
            known: str = json.loads((self.folder / BASE).read_text("utf-8"))["fingerprint"]
        except (OSError, ValueError, KeyError, TypeError):
            raise UserError(f"{self.folder / BASE} is missing or damaged: it says which model was trained") from None
        if not base.is_known_as(known):
            raise UserError(
                f"the base model {base.source} is not the one that {self.folder} was trained on: its weights differ"
            )
        return known


def is_run(path: str | Path) -> bool:
    """Whether a path names the folder of a training run."""
    return all((Path(path) / name).exists() for name in (CONFIG, BASE, "checkpoints"))


def read_run(folder: Path) -> SavedRun:
    """The settings of a run. Raises UserError when the folder is none."""
    if not is_run(folder):
        raise UserError(f"{folder} is not a run folder: {CONFIG}, {BASE} and checkpoints/ belong to one")
    return SavedRun(folder, read_settings(["--config", str(folder / CONFIG)]))


def run_folder(path: Path) -> Path | None:
    """The folder of the run that is named, itself or by one of its checkpoints; None for anything else."""
    folder = path.parent.parent if path.parent.name == "checkpoints" else path
    return next((place for place in (path, folder) if is_run(place)), None)


def locate(path: Path, console: Console) -> tuple[SavedRun, Path]:
    """A run and one of its checkpoints: the one that is named, or the newest sound one. Raises UserError."""
    run = read_run(run_folder(path) or path)
    if run.folder == path:
        return run, run.newest(console)
    checkpoint.verify(path)
    return run, path


def resolved(settings: RunSettings, console: Console) -> RunSettings:
    """The same settings, with the very checkpoints of the runs that they name."""
    train, judge = settings.train, settings.judge
    if train.init_from is not None:
        earlier, chosen = locate(train.init_from, console)
        settings = replace(settings, train=replace(train, init_from=chosen))
        if earlier.train.env != train.env:
            console.print(f"init-from: trained on {earlier.train.envs!r}, goes on with {train.envs!r}")
        elif earlier.settings.env != settings.env:
            console.print(f"init-from: trained on {train.envs!r} with other settings")
    if judge is not None and judge.run is not None:
        settings = replace(settings, judge=replace(judge, run=locate(judge.run, console)[1]))
    return settings


def base_of(settings: RunSettings, console: Console, device: str, dtype: str | None = None) -> BaseSpec:
    """The base model of a run with these settings; the tiny model is made first where it is missing."""
    with importing():
        from runners.loading.base_model import BaseSpec, source_of

    train = settings.train
    dtype = dtype or train.dtype
    if train.init_from is None:
        assert settings.chat is not None
        envs = list(registry.make_all(settings.env).values())
        source = source_of(train.model, envs, settings.pretrain, settings.chat, console)
        return BaseSpec(source, device, dtype, settings.chat, quantize=train.quantize)
    earlier, chosen = locate(train.init_from, console)
    if earlier.train.quantize != "none":
        raise UserError(f"{earlier.folder} was trained with --quantize: its adapter cannot be merged, so not built on")
    below = base_of(earlier.settings, console, device, dtype)
    return replace(below, merged=(*below.merged, (earlier.settings.lora, str(chosen))))
