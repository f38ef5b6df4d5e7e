"""What a finished or stopped run left: its settings, its newest sound checkpoint and the model that it began from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from agent_envs import registry
from runners import settings
from runners.config import UserError, parse
from runners.models import Base, BaseSpec, source_of
from runners.training import checkpoint

CONFIG, BASE = "config.yaml", "base.json"


@dataclass(frozen=True)
class Run:
    """A run folder that was read."""

    folder: Path
    train: settings.Train
    parts: Mapping[str, Any]

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def newest(self, console: Console) -> Path:
        """The newest sound checkpoint; damaged ones are named. Raises UserError when there is none."""
        return checkpoint.newest_sound(self.checkpoints, lambda line: console.print(line, soft_wrap=True, markup=False))

    def check(self, base: Base) -> None:
        """Raises UserError when ``base`` is not the model that the run was trained on."""
        try:
            known = json.loads((self.folder / BASE).read_text("utf-8"))["fingerprint"]
        except (OSError, ValueError, KeyError):
            raise UserError(f"{self.folder / BASE} is missing or damaged: it says which model was trained") from None
        if known != base.fingerprint:
            raise UserError(
                f"the base model {base.source} is not the one that {self.folder} was trained on: its weights differ"
            )


def is_run(path: str | Path) -> bool:
    """Whether a path names the folder of a training run."""
    return all((Path(path) / name).exists() for name in (CONFIG, BASE, "checkpoints"))


def read_run(folder: Path) -> Run:
    """The settings of a run. Raises UserError when the folder is none."""
    if not is_run(folder):
        raise UserError(f"{folder} is no run folder: {CONFIG}, {BASE} and checkpoints/ belong to one")
    train, parts = parse(settings.Train, settings.parts_of, ["--config", str(folder / CONFIG)], about="")
    return Run(folder, train, parts)


def run_folder(path: Path) -> Path | None:
    """The folder of the run that is named, itself or by one of its checkpoints; None for anything else."""
    folder = path.parent.parent if path.parent.name == "checkpoints" else path
    return next((place for place in (path, folder) if is_run(place)), None)


def locate(path: Path, console: Console) -> tuple[Run, Path]:
    """A run and one of its checkpoints: the one that is named, or the newest sound one. Raises UserError."""
    run = read_run(run_folder(path) or path)
    if run.folder == path:
        return run, run.newest(console)
    checkpoint.verify(path)
    return run, path


def base_of(
    train: settings.Train, parts: Mapping[str, Any], console: Console, device: str, dtype: str | None = None
) -> BaseSpec:
    """What the model of a run with these settings is made from; the tiny model is made first where it is missing."""
    dtype = dtype or train.dtype
    if train.init_from is None:
        env = registry.make(train.env, parts[train.env])
        return BaseSpec(source_of(train.model, env, parts, console), device, dtype, parts["chat"])
    earlier, chosen = locate(train.init_from, console)
    below = base_of(earlier.train, earlier.parts, console, device, dtype)
    return replace(below, merged=(*below.merged, (earlier.parts["lora"], str(chosen))))
