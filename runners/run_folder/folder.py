"""A run's folder: made fresh for a new run, held by one process at a time."""

import fcntl
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from runners.command_line.errors import UserError

LOCK = ".lock"


@contextmanager
def fresh_folder(folder: Path) -> Iterator[Path]:
    """Makes a fresh run folder; what goes wrong inside removes it, and the folders above that were made for it.

    Raises UserError when it exists with contents or cannot be written.
    """
    missing = _make(folder)
    try:
        yield folder
    except BaseException:
        with suppress(UserError, OSError), hold(folder):  # another process may have begun a run there meanwhile
            _remove(folder, missing)
        raise


def _remove(folder: Path, missing: Sequence[Path]) -> None:
    """Empties a folder, and removes those places of it and above that were ``missing`` before. Raises OSError."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    for place in missing:
        place.rmdir()


def _make(folder: Path) -> list[Path]:
    """Makes the folder, and returns which places of it and above were missing."""
    try:
        missing = [place for place in (folder, *folder.parents) if not place.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        if any(path.name != LOCK for path in folder.iterdir()):
            raise UserError(f"{folder} is not empty; name another folder with --out")
        probe = folder / ".write"
        probe.touch()
        probe.unlink()
        return missing
    except OSError as error:
        raise UserError(f"cannot write the folder {folder}: {error.strerror}; name another with --out") from None


def write_whole(path: Path, text: str) -> None:
    """Writes ``text`` so that ``path`` never holds a part of it. Raises OSError."""
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_text(text, "utf-8")
    unfinished.replace(path)


def hold(folder: Path, how: str = "trained") -> IO[str]:
    """Keeps other processes from training in the same folder, until the file is closed or this process ends.

    Raises UserError when another process holds it.
    """
    file = (folder / LOCK).open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise UserError(f"{folder} is being {how} by another process; wait for it, or stop it first") from None
    return file
