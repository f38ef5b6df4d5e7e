"""Checkpoints: a folder that is there whole, or not at all.

Invariant: ``MANIFEST.json`` names every file of the folder with its sha256 and is written last; the folder is filled
under another name, forced to the disk and then renamed. What does not agree with its manifest is never loaded.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Collection
from pathlib import Path

from safetensors import SafetensorError

from agent_envs.cache import flush
from runners.command_line.errors import UserError
from runners.command_line.plain import dump_json

MANIFEST = "MANIFEST.json"
STATE, OPTIMIZER, RNG = "state.json", "optimizer.safetensors", "rng.safetensors"
"""Files of a checkpoint, beside those of the model."""
_NEW, _DAMAGED = ".new-", "damaged-"


class Damaged(UserError):  # noqa: N818
    """A checkpoint that is not what was written; its text names the file."""


def name_of(update: int) -> str:
    return f"update-{update}"


def update_of(folder: Path) -> int:
    return int(folder.name.removeprefix("update-"))


def checkpoints(parent: Path) -> list[Path]:
    """The checkpoints in a folder, the oldest first; sound or not."""
    return sorted((p for p in parent.glob("update-*") if p.name[7:].isdecimal() and p.is_dir()), key=update_of)


def write(target: Path, fill: Callable[[Path], None]) -> None:
    """Makes the folder ``target``, which ``fill`` writes its files into. Raises UserError when the disk refuses.

    A damaged folder of that name is kept beside it under another name.
    """
    new = target.with_name(_NEW + target.name)
    try:
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        fill(new)
        files = sorted(new.iterdir())
        for path in files:
            flush(path)
        sums = {path.name: _sum(path) for path in files}
        (new / MANIFEST).write_text(dump_json(sums), "utf-8")
        flush(new / MANIFEST)
        flush(new)
        if target.exists():
            aside = target.with_name(_DAMAGED + target.name)
            shutil.rmtree(aside, ignore_errors=True)
            target.rename(aside)
        new.rename(target)
        flush(target.parent)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(new, ignore_errors=True)
        sound = [path.name for path in checkpoints(target.parent)]
        kept = f"{sound[-1]} is kept" if sound else "there is no earlier one"
        why = getattr(error, "strerror", None) or error
        raise UserError(f"cannot write the checkpoint {target} ({why}); {kept}: make room, then --resume RUN") from None


def verify(folder: Path) -> None:
    """Raises Damaged, naming the first file that is missing, cut short, changed or not in the manifest."""
    try:
        sums = json.loads((folder / MANIFEST).read_text("utf-8"))
        if not isinstance(sums, dict):
            raise ValueError
    except FileNotFoundError:
        raise Damaged(f"{folder / MANIFEST} is missing") from None
    except ValueError:
        raise Damaged(f"{folder / MANIFEST} cannot be read") from None
    for name, expected in sums.items():
        path = folder / name
        if not path.is_file():
            raise Damaged(f"{path} is missing")
        if _sum(path) != expected:
            raise Damaged(f"{path} was changed or cut short")
    strange = {path.name for path in folder.iterdir()} - sums.keys() - {MANIFEST}
    if strange:
        raise Damaged(f"{folder / min(strange)} is not in the manifest")


def newest_sound(parent: Path, tell: Callable[[str], None]) -> Path:
    """The newest checkpoint that verifies; ``tell`` hears of every newer one that does not. Raises UserError."""
    complaints = []
    for folder in reversed(checkpoints(parent)):
        try:
            verify(folder)
        except Damaged as damage:
            complaints.append(str(damage))
            continue
        for complaint in complaints:
            tell(f"{complaint}: that checkpoint is left out, {folder.name} is used")
        return folder
    result = "; ".join(complaints) or "there is none yet"
    raise UserError(f"no sound checkpoint in {parent}: {result}")


def prune(parent: Path, keep: Collection[int]) -> None:
    """Removes all checkpoints but those of the updates ``keep``; a folder loses its manifest's name first."""
    for folder in checkpoints(parent):
        if update_of(folder) not in keep:
            gone = folder.with_name(_NEW + "gone-" + folder.name)
            folder.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)


def clear_unfinished(parent: Path) -> None:
    """Removes what a killed process was writing or removing."""
    for folder in parent.glob(f"{_NEW}*"):
        shutil.rmtree(folder, ignore_errors=True)


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
