"""A run's folder: made fresh for a new run, held by one process at a time."""

import fcntl
from pathlib import Path
from typing import IO

from runners.command_line.errors import UserError

LOCK = ".lock"


def open_run_folder(folder: Path) -> Path:
    """Makes a fresh run folder. Raises UserError when it exists with contents or cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(path.name != LOCK for path in folder.iterdir()):
            raise UserError(f"{folder} is not empty; name another folder with --out")
        probe = folder / ".write"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(f"cannot write the run folder {folder}: {error.strerror}; name another with --out") from None
    return folder


def write_whole(path: Path, text: str) -> None:
    """Writes ``text`` so that ``path`` never holds a part of it. Raises OSError."""
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_text(text, "utf-8")
    unfinished.replace(path)


def hold(folder: Path) -> IO[str]:
    """Keeps other processes from training in the same folder, until the file is closed or this process ends.

    Raises UserError when another process holds it.
    """
    file = (folder / LOCK).open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise UserError(f"{folder} is being trained by another process; wait for it, or stop it first") from None
    return file
