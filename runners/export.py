"""Writes what a run learned in formats that other programs load: an adapter or a whole model, and a model card.

    turnwise export runs/wiki-selfac-0-…
    turnwise export runs/wiki-selfac-0-… --merge

The export is loaded again with transformers and peft alone, and compared with the trained model.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    import runners

    runners.run("export")

from dataclasses import dataclass

import torch
import tyro
from rich.console import Console

from runners.command_line.errors import UserError
from runners.command_line.interrupts import importing
from runners.command_line.parse import parse
from runners.exporting import hub


@dataclass(frozen=True)
class Export:
    """Write what a run learned in formats that other programs load."""

    run: tyro.conf.Positional[Path] = Path()
    """Run folder, or one of its checkpoints; of a run folder the newest sound checkpoint is taken."""
    out: Path | None = None
    """Folder to write, new or empty; by default RUN/export, or RUN/merged."""
    merge: bool = False
    """Merge the adapter into the base model and write one whole model."""
    push: str = ""
    """Also upload the folder to this repository, OWNER/NAME, of the Hugging Face hub; private unless `public`."""
    public: bool = False
    """Make the repository public when `push` makes it."""
    device: str = "cpu"
    """Device of the model: auto, cpu, cuda, …"""

    def __post_init__(self) -> None:
        if self.public and not self.push:
            raise ValueError("public only works with push")
        if self.push and not hub.valid(self.push):
            raise ValueError(f"push must name a repository, OWNER/NAME, not {self.push!r}")


def main() -> None:
    settings, _ = parse(Export)
    if settings.run == Path():
        raise UserError("name a run folder: turnwise export RUN")
    with importing():
        from runners.exporting.program import export

    console = Console()
    torch.set_num_threads(1)
    out = export(settings.run, settings.out, console, merge=settings.merge, device=settings.device)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) / 1e6
    console.print(
        f"{out} ({size:.1f} MB); README.md says how to load it", highlight=False, soft_wrap=True, markup=False
    )
    if settings.push:
        console.print(hub.push(out, settings.push, public=settings.public), highlight=False, soft_wrap=True)
