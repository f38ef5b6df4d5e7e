"""Places for results, checked before hours are spent on them, and named where they cannot be written."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from safetensors import SafetensorError

from runners.command_line.errors import UserError, place_of


def check_file(path: Path) -> None:
    """Raises UserError unless a file can be written at ``path``; what is there stays as it is."""
    if path.is_dir():
        raise UserError(f"{path} is a folder: name a file in it")
    if not path.parent.is_dir():
        raise UserError(f"cannot write {path}: the folder {path.parent} does not exist; make it, or name another")
    new = not path.exists()
    with writing(path, "; name another file"):
        path.open("ab").close()
        if new:
            path.resolve().unlink()


def check_folder(path: Path) -> None:
    """Raises UserError unless files can be written into the folder ``path``, made first where it is missing."""
    place = next(p for p in (path, *path.absolute().parents) if p.exists())
    if not place.is_dir():
        raise UserError(f"cannot write into {path}: {place} is not a folder")
    try:
        tempfile.TemporaryFile(dir=place).close()
    except OSError as error:
        raise UserError(f"cannot write into {path}: {error.strerror}; name another folder") from None


@contextmanager
def writing(path: Path, hint: str = "") -> Iterator[None]:
    """What cannot be written inside, tensors too, becomes a UserError that says what and why, and the ``hint``."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        named = place_of(error) if isinstance(error, OSError) else None
        place, why = named or path, getattr(error, "strerror", None) or error
        raise UserError(f"cannot write {place}: {why}{hint}") from None


class Saved(Protocol):
    """A model or a tokenizer of transformers."""

    def save_pretrained(self, save_directory: str | os.PathLike[str]) -> Any: ...


def save(one: Saved, folder: Path) -> None:
    """Writes a model or a tokenizer into ``folder``. Raises OSError, also for what its Rust part reports."""
    try:
        one.save_pretrained(folder)
    except Exception as error:
        if type(error) is not Exception and not isinstance(error, SafetensorError):
            raise
        raise OSError(errno.EIO, str(error), str(folder)) from None
