"""Landlock and seccomp: one process with one thread, which opens the system's programs and its own folder, and no more.

Invariant: it runs as the user that starts it (never root), so everything Landlock does not look at is refused by the
filter: signals to others, modes, owners and times of files, further processes, sockets.

Rights and scopes: Linux Documentation/userspace-api/landlock.rst, version 6.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from agent_envs.code.sandbox.zygote import linux, seccomp
from agent_envs.code.sandbox.zygote.cage import Bounds, Refused, lock_down, set_limits
from agent_envs.code.sandbox.zygote.own import FolderCage

LEAST_ABI = 6
_EXECUTE, _WRITE, _READ, _LIST, _TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
_ALL_FILES, _ALL_NETWORK, _ALL_SCOPES = (1 << 16) - 1, 0b11, 0b11
_MAKE = sum(1 << bit for bit in (4, 5, 7, 8, 10, 12, 13))  # remove and make folders, files, FIFOs and links; rename
_SOMEBODY = 0x5EEDF00D
"""Stands for the program's own id in the filter, which is made before there is one."""
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


class LandlockCage(FolderCage):
    """The kernel's file rules for a process without privileges."""

    def __init__(self, base: str, readable: Sequence[str], hidden: Sequence[str]) -> None:
        super().__init__(base)
        folders = [*readable, "/bin", "/lib", "/lib32", "/lib64", "/sbin", "/etc/ld.so.cache", "/etc/alternatives"]
        self._readable: list[str] = []
        self._listed: list[str] = []
        """Folders of which some parts are hidden: their names can be read."""
        for folder in dict.fromkeys(map(os.path.realpath, folders)):
            _around(folder, hidden, self._readable, self._listed)
        self._filter = seccomp.program(os.uname().machine, alone=_SOMEBODY)

    def start(self) -> None:
        try:
            abi = linux.landlock_abi()
        except OSError as error:
            raise Refused(
                f"this kernel has no Landlock ({error.strerror})",
                "boot a kernel of version 6.12 or later with 'landlock' among its lsm= modules",
            ) from error
        if abi < LEAST_ABI:
            raise Refused(
                f"this kernel's Landlock is version {abi}, and signals to other processes are open before {LEAST_ABI}",
                "use Linux 6.12 or later",
            )

    def confine(self, bounds: Bounds) -> None:
        set_limits(bounds, processes=False)
        linux.no_new_privileges()
        ruleset = linux.landlock_ruleset(_ALL_FILES, _ALL_NETWORK, _ALL_SCOPES)
        files = _READ | _EXECUTE
        for path in self._readable:
            _allow(ruleset, path, files, _LIST)
        for path in self._listed:
            _allow(ruleset, path, 0, _LIST)
        for path in _DEVICES:
            _allow(ruleset, path, _READ | _WRITE, 0)
        for path in (self.work, self.temporary):
            _allow(ruleset, path, files | _WRITE | _TRUNCATE, _LIST | _MAKE)
        linux.landlock_restrict(ruleset)
        os.close(ruleset)
        lock_down(self._filter.replace(_SOMEBODY.to_bytes(4, "little"), os.getpid().to_bytes(4, "little")))

    def end(self, pid: int) -> bool:
        return False  # it cannot start another process


def _around(path: str, hidden: Sequence[str], readable: list[str], listed: list[str]) -> None:
    """Adds to ``readable`` what covers ``path`` but the hidden parts, and to ``listed`` the folders that hold these."""
    if any((os.path.realpath(path) + os.sep).startswith(other + os.sep) for other in hidden):
        return
    if any(other.startswith(path + os.sep) for other in hidden):
        listed.append(path)
        for name in sorted(os.listdir(path)):
            _around(os.path.join(path, name), hidden, readable, listed)
    else:
        readable.append(path)


def _allow(ruleset: int, path: str, files: int, folders: int) -> None:
    """Allows ``files`` on a file, and ``folders`` too when it is a folder; what is not there is left out."""
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        linux.landlock_allow(ruleset, files | (folders if os.path.isdir(path) else 0), fd)
    finally:
        os.close(fd)
