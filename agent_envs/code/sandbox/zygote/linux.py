"""System calls of Linux that Python does not offer.

Invariant: every function raises OSError where the kernel refuses, and does nothing else.
"""

from __future__ import annotations

import ctypes
import os
import signal

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS = 0x20000, 0x02000000, 0x04000000
CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x08000000, 0x10000000, 0x20000000, 0x40000000
CLONE_THREAD = 0x10000
MS_RDONLY = 1
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_NOATIME, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 1024, 4096, 16384, 1 << 18
MNT_DETACH = 2
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 1, 2, 4
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_SECUREBITS = 1, 4, 24, 28
_PR_SET_SECCOMP, _PR_SET_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 22, 36, 38
_SECUREBITS_LOCKED = 0b11111111  # no root, no setuid fix-up, no keep-caps, no ambient: each of them, and its lock
LAST_DESCRIPTOR = 2**31 - 1
_CLOSE_RANGE = 436
_MOUNT_SETATTR, _LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 442, 444, 445, 446
_CLONE = {"x86_64": 56, "aarch64": 220}.get(os.uname().machine, -1)
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_AT_RECURSIVE, _AT_EMPTY_PATH = 0x8000, 0x1000
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _syscall(what: str, number: int, *arguments: int | bytes | ctypes.Array | ctypes._Pointer | None) -> int:
    given = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return _checked(_libc.syscall(ctypes.c_long(number), *given), what)


def _prctl(what: str, *arguments: int) -> None:
    _checked(_libc.prctl(*arguments, *[0] * (5 - len(arguments))), what)


def fork(flags: int) -> int:
    """As `os.fork`, into new namespaces (CLONE_NEW…), for a process with one thread.

    Nobody hears of it: neither what was registered with `os.register_at_fork`, nor the C library, which will take the
    child's thread for its parent's until the child forks itself.
    """
    return _syscall("clone", _CLONE, flags | signal.SIGCHLD, None, None, None, None)


def unshare(flags: int) -> None:
    """Leaves the namespaces that ``flags`` (CLONE_NEW…) name for new ones."""
    _checked(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: str | None, flags: int = 0, options: str = "") -> None:
    """mount(2)."""
    _checked(
        _libc.mount(
            source.encode(),
            target.encode(),
            kind.encode() if kind else None,
            ctypes.c_ulong(flags),
            options.encode() or None,
        ),
        f"mount on {target}",
    )


def protect(target: str, attributes: int, *, recursive: bool) -> None:
    """Sets ``attributes`` (ATTR_…) on a mount, or on the whole tree of mounts below it (Linux 5.12)."""
    value = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    _syscall(f"mount_setattr on {target}", _MOUNT_SETATTR, -100, target.encode(), flags, value, ctypes.sizeof(value))


def unmount(target: str) -> None:
    """Takes a mount away, at once for everybody who looks and in the end for those who still hold it."""
    _checked(_libc.umount2(target.encode(), MNT_DETACH), f"umount {target}")


def pivot_root_here() -> None:
    """Makes the working directory, a mount, the root, and takes the old root away."""
    _syscall("pivot_root", _PIVOT_ROOT[os.uname().machine], b".", b".")
    unmount(".")
    os.chdir("/")


def close_range(first: int, last: int) -> None:
    """Closes all descriptors from ``first`` to ``last``, both included, whatever number they have (Linux 5.9)."""
    _syscall("close_range", _CLOSE_RANGE, first, last, 0)


def die_with_parent(signal_number: int) -> None:
    """Asks for a signal at the parent's end; a change of user takes the wish back."""
    _prctl("PR_SET_PDEATHSIG", _PR_SET_PDEATHSIG, signal_number)


def set_dumpable(dumpable: bool) -> None:
    """Whether others of the same user may trace this process and open its files in /proc."""
    _prctl("PR_SET_DUMPABLE", _PR_SET_DUMPABLE, int(dumpable))


def adopt_orphans() -> None:
    """Orphans among the descendants become children of this process."""
    _prctl("PR_SET_CHILD_SUBREAPER", _PR_SET_SUBREAPER, 1)


def no_new_privileges() -> None:
    """No program started from now on gains anything by its mode bits."""
    _prctl("PR_SET_NO_NEW_PRIVS", _PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities(*, bounding: bool) -> None:
    """Gives up all capabilities; with ``bounding`` (takes CAP_SETPCAP) also those that a program could bring back."""
    if bounding:
        _prctl("PR_SET_SECUREBITS", _PR_SET_SECUREBITS, _SECUREBITS_LOCKED)
        for number in range(64):
            try:
                _prctl("PR_CAPBSET_DROP", _PR_CAPBSET_DROP, number)
            except OSError:  # one more than this kernel knows
                break
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _checked(_libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def install_filter(instructions: bytes) -> None:
    """Puts a seccomp filter of BPF ``instructions`` (8 bytes each) on this process, for good."""
    program = _Program(len(instructions) // 8, instructions)
    _prctl("seccomp", _PR_SET_SECCOMP, 2, ctypes.addressof(program))


def landlock_abi() -> int:
    """Version of Landlock. Raises OSError where it is missing or switched off."""
    return _syscall("landlock_create_ruleset", _LANDLOCK_CREATE, None, 0, 1)


def landlock_ruleset(files: int, network: int, scopes: int) -> int:
    """A file descriptor of a ruleset that handles these rights."""
    value = (ctypes.c_uint64 * 3)(files, network, scopes)
    return _syscall("landlock_create_ruleset", _LANDLOCK_CREATE, value, ctypes.sizeof(value), 0)


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("folder", ctypes.c_int32))


def landlock_allow(ruleset: int, rights: int, folder: int) -> None:
    """Allows ``rights`` on the file or below the folder behind the descriptor ``folder``."""
    value = _Beneath(rights, folder)
    _syscall("landlock_add_rule", _LANDLOCK_ADD, ruleset, 1, ctypes.pointer(value), 0)


def landlock_restrict(ruleset: int) -> None:
    """Puts the ruleset on this process, for good. Takes `no_new_privileges`."""
    _syscall("landlock_restrict_self", _LANDLOCK_RESTRICT, ruleset, 0)
