"""Makes the tiny models of the package again, with the default settings of their environments.

    python scripts/package_tiny.py --env wiki math puzzle corridor

Each takes a few minutes. Weights are kept in 16 bits: half a million of them are 1 MB.
"""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
import tyro
from rich.console import Console
from safetensors.torch import load_file, save_file

from agent_envs import registry
from runners.cloning.packaged import PLACE
from runners.cloning.settings import PretrainSettings
from runners.cloning.tiny_model import ensure_tiny

WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class PackageTiny:
    """Make tiny models of the package."""

    env: tuple[str, ...]
    """Environments."""


def package(made: Path, place: Path) -> None:
    """Copies a model, its weights in 16 bits."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(made, place, ignore=shutil.ignore_patterns(WEIGHTS))
    weights = {name: weight.half() for name, weight in load_file(made / WEIGHTS).items()}
    save_file(weights, place / WEIGHTS, {"format": "pt"})


def main() -> None:
    settings = tyro.cli(PackageTiny)
    torch.set_num_threads(1)
    for name in settings.env:
        made = ensure_tiny([registry.make(name)], PretrainSettings(fresh=True), Console())
        package(made, PLACE / name)


if __name__ == "__main__":
    main()
