"""The cache of built data: folders that several processes may fill at once and then only read.

Invariant: a published folder is complete. It is built beside its place, flushed to the disk and renamed in one step;
a builder that dies leaves a temporary folder that nobody reads, and that the next builder removes.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agent_envs.core import SettingsError


def cache_dir() -> Path:
    """``$TURNWISE_CACHE``, or ``turnwise`` in ``$XDG_CACHE_HOME`` or ``~/.cache``. The folder need not exist yet."""
    if named := os.environ.get("TURNWISE_CACHE"):
        return Path(named).expanduser()
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification has relative paths ignored.
    return (base if base.is_absolute() else Path.home() / ".cache") / "turnwise"


def build_once(place: Path, build: Callable[[Path], None]) -> Path:
    """`place`, built by `build(folder)` first when it is missing.

    Concurrent callers wait for the one that builds. Raises `SettingsError` when the place cannot be written.
    """
    try:
        if place.is_dir():
            return place
        place.parent.mkdir(parents=True, exist_ok=True)
        with _locked(place.with_name(place.name + ".lock")):
            if not place.is_dir():
                _publish(place, build)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SettingsError(
            f"cannot write the cache {place.parent} ({reason}): set TURNWISE_CACHE to a writable folder"
        ) from error
    return place


def _publish(place: Path, build: Callable[[Path], None]) -> None:
    """To be called by one at a time."""
    for left in place.parent.glob(f"{place.name}.tmp-*"):
        shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=place.name + ".tmp-", dir=place.parent))
    try:
        build(folder)
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                path.chmod(0o644)  # some builders make private files, and mkdtemp a private folder; a cache is shared
                flush(path)
        flush(folder)
        folder.chmod(0o755)
        folder.rename(place)
        flush(place.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def flush(path: Path) -> None:
    """Returns when a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an advisory lock; the system frees it when the holder dies."""
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
