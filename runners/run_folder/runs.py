"""Run folders that are read again: settings, newest sound checkpoint, and the base model."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from agent_envs import registry
from runners.command_line.errors import UserError
from runners.loading.base_model import Base, BaseSpec, source_of
from runners.run_folder import checkpoint
from runners.settings.run_settings import RunSettings, Train, read_settings

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


def base_of(settings: RunSettings, console: Console, device: str, dtype: str | None = None) -> BaseSpec:
    """The base model of a run with these settings; the tiny model is made first where it is missing."""
    train = settings.train
    dtype = dtype or train.dtype
    if train.init_from is None:
        assert settings.chat is not None
        env = registry.make(train.env, settings.env)
        return BaseSpec(source_of(train.model, env, settings.pretrain, console), device, dtype, settings.chat)
    earlier, chosen = locate(train.init_from, console)
    below = base_of(earlier.settings, console, device, dtype)
    return replace(below, merged=(*below.merged, (earlier.settings.lora, str(chosen))))
