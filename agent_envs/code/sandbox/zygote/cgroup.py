"""Where control groups may be made: the only thing that bounds the memory of a run as a whole.

Invariant: what is made here lies in folders of this sandbox's own, which the keeper removes.

Version 1 has a tree for each controller, version 2 (Linux Documentation/admin-guide/cgroup-v2.rst) one for all; there,
only leaves hold processes, and a process is moved by who may write to what is above both its places.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from agent_envs.code.sandbox.zygote import stale
from agent_envs.code.sandbox.zygote.group import Tree, put, settled

_CONTROLLERS = ("memory", "pids")
_PREFIX = "turnwise-held-"


def make_trees(owner: int) -> list[Tree]:
    """Folders in which the user ``owner`` may make groups that bound memory.

    Raises OSError where this process may not make such folders.
    """
    places = list(_places())
    for _, folder in places:
        for parent in (folder, *folder.parents[:3]):
            stale.sweep(str(parent), _PREFIX, lambda path: remove_folder(Path(path)))
    name = f"{_PREFIX}{os.urandom(6).hex()}"
    made: list[Tree] = []
    try:
        for controllers, folder in places:
            if set(_CONTROLLERS) & set(controllers):
                made.append(_make(1, folder / name, owner))
        if not any(Path(tree.path, "memory.limit_in_bytes").exists() for tree in made):
            delegated = [parent for controllers, folder in places if not controllers for parent in _delegated(folder)]
            if not delegated:
                raise OSError("no memory controller is delegated to this process")
            made.append(_make(2, delegated[0] / name, owner))
    except OSError:
        remove(made)
        raise
    return made


def _make(version: int, path: Path, owner: int) -> Tree:
    path.mkdir()
    os.chown(path, owner, -1)
    if version == 2:
        for file in ("cgroup.procs", "cgroup.subtree_control"):
            os.chown(path / file, owner, -1)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    stale.hold(fd)
    return Tree(version, fd, str(path))


def _delegated(here: Path) -> Iterator[Path]:
    """The groups above this process, nearest first, that may have groups with both controllers below (version 2)."""
    for folder in (here, *here.parents):
        with contextlib.suppress(OSError):
            controllers = (folder / "cgroup.subtree_control").read_text().split()
            if set(_CONTROLLERS) <= set(controllers) and os.access(folder / "cgroup.procs", os.W_OK):
                yield folder


def _places() -> Iterator[tuple[list[str], Path]]:
    """(controllers, folder of this process) of every tree of control groups in sight; version 2 names none."""
    mounts = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            top, point = fields.split(" ")[3:5]
            mounts.append((kind, top.rstrip("/"), point, set(options.split(","))))
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, named, path = line.split(":", 2)
        controllers = [name for name in named.split(",") if name]
        for kind, top, point, able in mounts:
            right = set(controllers) <= able if controllers else kind == "cgroup2"
            if right and path.startswith(top):
                yield controllers, Path(point, path.removeprefix(top).lstrip("/"))
                break


def step_in(trees: Iterable[Tree]) -> None:
    """Moves this process into our group of a tree of version 2, which is to be the root of all that it sees."""
    for tree in trees:
        if tree.version == 2:
            put(tree.fd, "cgroup.procs", "0")


def settle(trees: Iterable[Tree]) -> None:
    """Moves this process on into a leaf of that group, and lets runs have limits beside it."""
    for tree in trees:
        if tree.version == 2:
            os.mkdir("zygote", dir_fd=tree.fd)
            put(tree.fd, "zygote/cgroup.procs", "0")
            put(tree.fd, "cgroup.subtree_control", " ".join(f"+{name}" for name in _CONTROLLERS))


def remove(trees: Iterable[Tree]) -> None:
    """Removes our folders and whatever is left below them."""
    for tree in trees:
        remove_folder(Path(tree.path))
        os.close(tree.fd)


def remove_folder(path: Path) -> None:
    """Removes a folder of groups and the groups right below it."""
    for below in path.glob("*/"):
        settled(below.rmdir)
    settled(path.rmdir)
