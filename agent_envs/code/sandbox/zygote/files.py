"""The files of a run: put into its folder, and taken out again.

Invariants:

- Nothing is followed: a name leads to a regular file or a folder of this very folder, or it is left out.
- What is read is bounded in bytes, number and depth before it is read.
- The processes of the run are dead when its files are taken out or removed: nothing changes meanwhile.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_DEPTH = 32
_ENTRIES = 10_000
_NAMES = 1 << 20
"""Bytes of all names of changed files together: a program chooses them."""
_TOLD = 100
"""Most names of skipped files."""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
OPEN_FOLDER = _READ | os.O_DIRECTORY


class Collected(NamedTuple):
    """What is in the folder that was not put there as it is."""

    changed: dict[str, bytes]
    deleted: list[str]
    skipped: list[str]
    """Names that are no regular files, too large, too long, too deep, too many or unreadable (100 at most)."""


def put(folder: str, files: Mapping[str, bytes]) -> None:
    """Writes the files, whose names are relative and checked, into a folder that is empty."""
    for name, data in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644), "wb") as file:
            file.write(data)


def take(folder: str, given: Mapping[str, bytes], most: int) -> Collected:
    """What changed against ``given``, of at most ``most`` bytes together."""
    changed: dict[str, bytes] = {}
    skipped: list[str] = []
    left = set(given)
    room, names = most, _NAMES
    top = os.open(folder, OPEN_FOLDER)
    try:
        for name, parent, entry in _entries(top, skipped):
            left.discard(name)
            before, length = given.get(name), len(name.encode())
            data = _content(parent, entry, max(room, len(before or b"")))
            if data is not None and data == before:
                continue
            if data is None or len(data) > room or length > names:
                _skip(skipped, name)
            else:
                changed[name] = data
                room, names = room - len(data), names - length
    finally:
        os.close(top)
    return Collected(changed, sorted(left), sorted(skipped))


def _skip(skipped: list[str], name: str) -> None:
    if len(skipped) < _TOLD:
        skipped.append(name)


def _entries(top: int, skipped: list[str]) -> Iterator[tuple[str, int, str]]:
    """(relative name, descriptor of its folder, name there) of everything that is no folder."""
    count = 0
    for where, folders, names, folder in os.fwalk(".", dir_fd=top, follow_symlinks=False):
        prefix = where.removeprefix(".").removeprefix("/") + "/" if where != "." else ""
        count += len(folders)
        folders[:] = sorted(filter(_speakable, folders))[: max(0, _ENTRIES - count + len(folders))]
        if prefix.count("/") >= _DEPTH:
            for name in folders:
                _skip(skipped, prefix + name)
            folders.clear()
        for name in sorted(filter(_speakable, names)):
            count += 1
            if count > _ENTRIES:
                _skip(skipped, prefix + name)
                return
            yield prefix + name, folder, name


def _speakable(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _content(folder: int, name: str, most: int) -> bytes | None:
    """The bytes of a regular file of at most ``most`` bytes; None for anything else."""
    try:
        fd = os.open(name, _READ, dir_fd=folder)
    except OSError:
        return None
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > most:
            return None
        return file.read(most)


def remove(path: str) -> None:
    """Removes a file or a folder, whatever modes its owner gave to what is below; follows nothing. Raises OSError.

    Folders are moved up before they are emptied: a path may be too long to be said, and too deep to be descended.
    """
    try:
        if not _is_folder(path):
            os.unlink(path)
            return
    except FileNotFoundError:
        return
    os.chmod(path, 0o700)
    top = os.open(path, OPEN_FOLDER)
    mark, moved = os.urandom(8).hex(), 0
    try:
        while names := os.listdir(top):
            for name in names:
                if not _is_folder(name, top):
                    os.unlink(name, dir_fd=top)
                    continue
                os.chmod(name, 0o700, dir_fd=top)
                folder = os.open(name, OPEN_FOLDER, dir_fd=top)
                try:
                    for below in os.listdir(folder):
                        if not _is_folder(below, folder):
                            os.unlink(below, dir_fd=folder)
                            continue
                        os.chmod(below, 0o700, dir_fd=folder)
                        os.rename(below, f"{mark}-{moved}", src_dir_fd=folder, dst_dir_fd=top)
                        moved += 1
                finally:
                    os.close(folder)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(path)


def _is_folder(name: str, folder: int | None = None) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
