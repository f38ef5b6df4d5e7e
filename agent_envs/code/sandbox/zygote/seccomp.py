"""A filter that lets through the system calls a program needs, and refuses every other one.

Invariant: it is a list of what is allowed. A call of another architecture kills the process; ``clone3`` does not exist,
because a filter cannot see its flags; no socket can be made, only a pair of them; no namespace, no mount, no tracing.

Classic BPF over ``struct seccomp_data`` (Linux Documentation/userspace-api/seccomp_filter.rst): number at 0,
architecture at 4, argument i at 16 + 8 i, low half first on both machines.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable

from agent_envs.code.sandbox.zygote.syscalls import numbers

_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_LOAD, _EQUAL, _GREATER, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NEW = 0x7E020000  # CLONE_NEW…: NS CGROUP UTS IPC USER PID NET
_UNKNOWN = 450  # later calls are said not to exist, as on an older kernel: the C library then does without
_TERMINAL = (0x5401, 0x540F, 0x5410, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""ioctl: TCGETS TIOCGPGRP TIOCSPGRP TIOCGWINSZ FIONREAD FIONBIO FIONCLEX FIOCLEX."""
_PRCTL = (1, 2, 3, 4, 15, 16, 21, 23, 39)
"""PR_SET/GET_PDEATHSIG GET/SET_DUMPABLE SET/GET_NAME GET_SECCOMP CAPBSET_READ GET_NO_NEW_PRIVS."""
_LOCKS = (6, 7, 37, 38, 1024, 1026)
"""fcntl: F_SETLK F_SETLKW F_OFD_SETLK F_OFD_SETLKW F_SETLEASE F_NOTIFY: kernel memory that nothing bounds."""
_BUFFERS = (7, 8, 32, 33)
"""setsockopt: SO_SNDBUF SO_RCVBUF SO_SNDBUFFORCE SO_RCVBUFFORCE: memory of the kernel, too."""
_SET_PIPE_SIZE, _SET_OWNER, _SET_SIGNAL, _SET_OWNER_EX = 1031, 8, 10, 15
_ALONE = """
fork vfork clone chmod fchmodat fchmodat2 chown lchown fchownat utime utimes futimesat utimensat truncate setpgid
pidfd_open pidfd_send_signal tkill sendmsg sendmmsg
"""
"""What a program must not do that shares its user with others: Landlock does not look at modes, times and owners. Nor
may it keep open files in messages to itself, where they are not counted."""

Instruction = tuple[int, int, int, int]


def _return(action: int) -> Instruction:
    return (_RETURN, 0, 0, action)


def _fails(number: int) -> Instruction:
    return _return(_ERRNO | number)


def _argument(index: int) -> Instruction:
    return (_LOAD, 0, 0, 16 + 8 * index)


def _only(index: int, values: Iterable[int], otherwise: int) -> list[Instruction]:
    """Allows the call when the low half of an argument is one of ``values``."""
    block = [_argument(index)]
    for value in values:
        block += [(_EQUAL, 0, 1, value), _return(_ALLOW)]
    return [*block, _fails(otherwise)]


def _never(index: int, values: Iterable[int]) -> list[Instruction]:
    """Refuses the call when the low half of an argument is one of ``values``."""
    block = [_argument(index)]
    for value in values:
        block += [(_EQUAL, 0, 1, value), _fails(errno.EPERM)]
    return [*block, _return(_ALLOW)]


def _looked_at(alone: int | None) -> dict[str, list[Instruction]]:
    """The calls whose arguments decide."""
    owner = (_SET_OWNER, _SET_SIGNAL, _SET_OWNER_EX) if alone is not None else ()
    pdeath = (1,) if alone is not None else ()
    rules = {
        "clone": [_argument(0), (_ANY_BIT, 0, 1, _NEW), _fails(errno.EPERM), _return(_ALLOW)],
        "clone3": [_fails(errno.ENOSYS)],
        "socket": [_fails(errno.EAFNOSUPPORT)],
        "socketpair": _only(0, (1,), errno.EAFNOSUPPORT),
        "setsockopt": _never(2, _BUFFERS),
        "ioctl": _only(1, _TERMINAL, errno.ENOTTY),
        "fcntl": _never(1, (_SET_PIPE_SIZE, *_LOCKS, *owner)),
        "prctl": _only(0, [option for option in _PRCTL if option not in pdeath], errno.EPERM),
        "prlimit64": _only(0, (0,), errno.EPERM),
        "personality": _only(0, (0xFFFFFFFF,), errno.EPERM),
    }
    if alone is not None:
        for name in ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"):
            rules[name] = _only(0, (alone,), errno.EPERM)
    return rules


def program(machine: str, alone: int | None = None) -> bytes:
    """The filter for a machine (`os.uname`), 8 bytes an instruction.

    With ``alone``, the process's own id, it also has no second process or thread, signals nobody but itself, and leaves
    modes, owners and times of files as they are. Raises KeyError for a machine it does not know.
    """
    known = numbers(machine)
    allowed = {name: number for name, number in known.items() if alone is None or name not in _ALONE.split()}
    lines: list[Instruction] = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, _ARCHITECTURE[machine]),
        _return(_KILL),
        (_LOAD, 0, 0, 0),
    ]
    for name, block in _looked_at(alone).items():
        if name in allowed:
            lines += [(_EQUAL, 0, len(block), allowed.pop(name)), *block]
    for first, last in _ranges(allowed.values()):
        lines += [(_AT_LEAST, 0, 2, first), (_GREATER, 1, 0, last), _return(_ALLOW)]
    lines += [(_AT_LEAST, 0, 1, _UNKNOWN), _fails(errno.ENOSYS), _fails(errno.EPERM)]
    return b"".join(struct.pack("<HBBI", *line) for line in lines)


def _ranges(values: Iterable[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for value in sorted(set(values)):
        if found and value == found[-1][1] + 1:
            found[-1] = (found[-1][0], value)
        else:
            found.append((value, value))
    return found
