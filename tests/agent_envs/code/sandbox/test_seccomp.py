"""The filter of system calls on both machines, run by a small interpreter of BPF."""

from __future__ import annotations

import errno
import struct

import pytest

from agent_envs.code.sandbox.zygote import seccomp, syscalls

_MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_ALLOW, _KILL = "allow", "kill"


def verdict(program: bytes, architecture: int, number: int, *arguments: int) -> str | int:
    """What the kernel would do: allow, kill, or the error number."""
    padded = [value & (2**64 - 1) for value in [*arguments, *[0] * 6][:6]]
    data = struct.pack("<IIQ6Q", number, architecture, 0, *padded)
    lines = list(struct.iter_unpack("<HBBI", program))
    at = held = 0
    while True:
        code, yes, no, value = lines[at]
        at += 1
        match code:
            case 0x20:
                held = struct.unpack_from("<I", data, value)[0]
            case 0x15:
                at += yes if held == value else no
            case 0x25:
                at += yes if held > value else no
            case 0x35:
                at += yes if held >= value else no
            case 0x45:
                at += yes if held & value else no
            case 0x06:
                if value & 0xFFFF0000 == 0x00050000:
                    return value & 0xFFFF
                return {0x7FFF0000: _ALLOW, 0x80000000: _KILL}[value]
            case _:
                raise AssertionError(f"unknown instruction {code:#x}")


@pytest.fixture(params=list(_MACHINES))
def machine(request: pytest.FixtureRequest) -> str:
    return request.param


def test_every_listed_call_is_let_through_and_no_other(machine: str) -> None:
    program, known = seccomp.program(machine), syscalls.numbers(machine)
    looked_at = {
        "clone3",
        "socket",
        "socketpair",
        "ioctl",
        "fcntl",
        "prctl",
        "prlimit64",
        "personality",
        "clone",
        "setsockopt",
    }
    plain = {number for name, number in known.items() if name not in looked_at}
    for number in range(600):
        got = verdict(program, _MACHINES[machine], number)
        if number in plain:
            assert got == _ALLOW, number
        elif number not in known.values():
            assert got in (errno.EPERM, errno.ENOSYS), number
    assert verdict(program, _MACHINES[machine], 0x40000000 + 1) == errno.ENOSYS  # x32


def test_another_architecture_is_the_end(machine: str) -> None:
    assert verdict(seccomp.program(machine), 0x40000003, 1) == _KILL


def test_what_calls_are_asked_decides(machine: str) -> None:
    known, program = syscalls.numbers(machine), seccomp.program(machine)

    def asked(name: str, *arguments: int) -> str | int:
        return verdict(program, _MACHINES[machine], known[name], *arguments)

    assert asked("clone", 17) == _ALLOW == asked("clone", 0x3D0F00)  # a fork, and a thread
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert asked("clone", 17 | flag) == errno.EPERM
    assert asked("clone3") == errno.ENOSYS
    assert asked("socket", 1, 1) == asked("socket", 2, 1) == asked("socketpair", 2, 1) == errno.EAFNOSUPPORT
    assert asked("socketpair", 1, 1) == _ALLOW
    assert asked("ioctl", 0, 0x5412) == errno.ENOTTY  # TIOCSTI
    assert asked("ioctl", 0, 0x5401) == _ALLOW
    assert asked("fcntl", 0, 1031) == errno.EPERM and asked("fcntl", 0, 8, 5) == _ALLOW
    assert asked("prctl", 22) == errno.EPERM and asked("prctl", 15) == _ALLOW
    assert asked("prlimit64", 1) == errno.EPERM and asked("prlimit64", 0) == _ALLOW
    assert asked("personality", 0x40000) == errno.EPERM
    assert asked("setsockopt", 3, 1, 7) == asked("setsockopt", 3, 1, 8) == errno.EPERM  # larger buffers
    assert asked("setsockopt", 3, 1, 16) == _ALLOW


def test_a_program_that_is_alone_touches_nobody_else(machine: str) -> None:
    known, program = syscalls.numbers(machine), seccomp.program(machine, alone=77)

    def asked(name: str, *arguments: int) -> str | int:
        return verdict(program, _MACHINES[machine], known[name], *arguments)

    for name in ("kill", "tgkill", "rt_sigqueueinfo"):
        assert asked(name, 77, 9) == _ALLOW
        assert asked(name, 78, 9) == asked(name, -1, 9) == asked(name, 0, 9) == errno.EPERM
    for name in ("clone", "fchmodat", "utimensat", "pidfd_send_signal", "tkill"):
        assert asked(name, 17) == errno.EPERM
    assert asked("fcntl", 0, 8, 5) == errno.EPERM  # signals of files to another process


def test_numbers_are_those_of_this_machine() -> None:
    # Two independent ways to a number: the table, and what the C library asks the kernel for.
    import ctypes
    import os

    machine = os.uname().machine
    if machine not in _MACHINES:
        pytest.skip("a machine without a table")
    libc = ctypes.CDLL(None)
    known = syscalls.numbers(machine)
    assert libc.syscall(known["getpid"]) == os.getpid()
    assert libc.syscall(known["getuid"]) == os.getuid()
    assert libc.syscall(known["getppid"]) == os.getppid()
    assert libc.syscall(known["pidfd_open"], -1, 0) == -1


def test_a_machine_without_a_table_is_refused() -> None:
    with pytest.raises(KeyError):
        seccomp.program("riscv64")
