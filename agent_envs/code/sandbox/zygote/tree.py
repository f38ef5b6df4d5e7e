"""The file system of a namespace: a read-only root with the system's programs, and nothing else of the host.

Invariant: what is not named here is not there. Everything of the host is mounted read-only.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from agent_envs.code.sandbox.zygote import linux

BOX = "/box"
"""Where the file system of a run is mounted before its parts go to their places."""
PLACES = {"work": "/work", "tmp": "/tmp", "shm": "/dev/shm"}
_LINKS = ("/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_FILES = {
    "etc/passwd": "agent:x:1000:1000::/work:/bin/sh\n",
    "etc/group": "agent:x:1000:\n",
    "etc/hosts": "127.0.0.1 localhost\n",
}
_DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}


def make_root(readable: Sequence[str], hidden: Sequence[str]) -> bool:
    """Makes ``readable`` folders of the host, and little else, the whole file system of this mount namespace.

    The folders ``hidden`` below them are empty.

    Returns whether the kernel lets runs have a /proc of their own; in a container whose /proc is masked it does not.
    Raises OSError.
    """
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    # Opened before anything is covered: the new root may lie over one of them.
    shared = {path: _held(path) for path in (*readable, *_LINKS, "/etc/alternatives") if os.path.isdir(path)}
    links = {path: os.readlink(path) for path in _LINKS if os.path.islink(path)}
    devices = {name: _held(f"/dev/{name}") for name in _DEVICES}
    cache = Path("/etc/ld.so.cache")
    linker = cache.read_bytes() if cache.exists() else b""

    top = Path("/tmp")
    linux.mount("tmpfs", str(top), "tmpfs", linux.MS_NOSUID, "size=4m,nr_inodes=1024,mode=0755")
    for folder in ("proc", "dev", "etc", BOX.lstrip("/"), "work", "tmp", "dev/shm"):
        (top / folder).mkdir(parents=True, exist_ok=True)
    for path, fd in shared.items():
        if path not in links:
            _bind(fd, top / path.lstrip("/"), linux.ATTR_NODEV | linux.ATTR_NOSUID)
    for path in hidden:
        if (top / path.lstrip("/")).is_dir():
            flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_RDONLY
            linux.mount("tmpfs", str(top / path.lstrip("/")), "tmpfs", flags, "size=4k,nr_inodes=1")
    for path, target in links.items():
        (top / path.lstrip("/")).symlink_to(target)
    for name, fd in devices.items():
        (top / "dev" / name).touch()
        linux.mount(f"/proc/self/fd/{fd}", str(top / "dev" / name), None, linux.MS_BIND)
    for name, target in _DEVICE_LINKS.items():
        (top / "dev" / name).symlink_to(target)
    for name, text in _FILES.items():
        (top / name).write_text(text)
    (top / "etc/ld.so.cache").write_bytes(linker)
    for fd in (*shared.values(), *devices.values()):
        os.close(fd)
    try:
        # The kernel mounts a /proc for a run only where a whole one is in sight already.
        linux.mount("proc", str(top / "proc"), "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
        proc = True
    except PermissionError:
        proc = False
    os.chdir(top)
    linux.pivot_root_here()
    linux.protect("/", linux.ATTR_RDONLY | linux.ATTR_NOSUID, recursive=False)
    return proc


def _held(path: str) -> int:
    return os.open(path, os.O_PATH | os.O_CLOEXEC)


def _bind(fd: int, target: Path, attributes: int) -> None:
    """Shows the folder behind ``fd``, with all that is mounted below it, read-only at ``target``."""
    target.mkdir(parents=True, exist_ok=True)
    linux.mount(f"/proc/self/fd/{fd}", str(target), None, linux.MS_BIND | linux.MS_REC)
    linux.protect(str(target), attributes | linux.ATTR_RDONLY, recursive=True)


def mount_box(disk: int, inodes: int, *, proc: bool) -> None:
    """The file system of one run: limited bytes and files in all of its folders together."""
    flags = linux.MS_NOSUID | linux.MS_NODEV
    linux.mount("tmpfs", BOX, "tmpfs", flags | linux.MS_NOATIME, f"size={disk},nr_inodes={inodes + 8},mode=0755")
    for name, place in PLACES.items():
        os.mkdir(f"{BOX}/{name}", 0o755)
        linux.mount(f"{BOX}/{name}", place, None, linux.MS_BIND)
    linux.mount("tmpfs", BOX, "tmpfs", flags, "size=4k,nr_inodes=1")  # covered: to unmount it takes the kernel long
    if proc:  # the processes of this run, and nothing about the machine; written, it would make the supervisor go first
        flags |= linux.MS_NOEXEC | linux.MS_RDONLY
        linux.mount("proc", "/proc", "proc", flags, "subset=pid,hidepid=2")
