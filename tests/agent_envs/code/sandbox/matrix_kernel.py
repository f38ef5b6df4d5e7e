"""More programs against a wall: calls and objects of the kernel, as in `matrix_reach`.

``CALLS`` are all system calls below 470 that the filter does not list.
"""

from __future__ import annotations

import os

from matrix_reach import attempt

from agent_envs.code.sandbox.zygote.syscalls import numbers

_BY_THE_KERNEL = {335, 336}
"""uretprobe, uprobe: no filter is asked, and the kernel kills who calls them (seccomp.c since Linux 6.14)."""
CALLS = sorted(set(range(470)) - set(numbers(os.uname().machine).values()) - _BY_THE_KERNEL)

KERNEL = [
    attempt(
        "every system call that is not listed",
        """
refused = (errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT)
did = []
for number in G["unlisted"]:
    ctypes.set_errno(0)
    if libc.syscall(ctypes.c_long(number), *[ctypes.c_long(-1)] * 6) != -1 or ctypes.get_errno() not in refused:
        did.append(number)""",
        control=False,
        given={"unlisted": CALLS},
    ),
    attempt(
        "sockets of every family",
        """
did = []
for family in range(1, 47):
    for kind in (1, 2, 3, 5):
        if tries(lambda: socket.socket(family, kind).close()):
            did.append(family)""",
    ),
    attempt(
        "pairs of sockets of other families",
        """
did = [family for family in (2, 10, 16, 17, 30, 38, 40) if tries(lambda: socket.socketpair(family, 1) and None)]""",
        control=False,
    ),
    attempt("watching files", "did = [n for n in (253, 294, 300) if libc.syscall(n, 0, 0) >= 0]"),
    attempt(
        "memory without a file",
        """
did = libc.syscall(319, b"name", 0) >= 0 or libc.syscall(447, 0) >= 0""",
    ),
    attempt("faults handled by itself", "did = libc.syscall(323, 1) >= 0 or libc.syscall(323, 0) >= 0"),
    attempt("rings of requests", "did = libc.syscall(425, 8, ctypes.create_string_buffer(256)) >= 0"),
    attempt(
        "semaphores, queues and segments of System V",
        """
did = []
for make, take, more in ((64, 66, (1, 0o600)), (68, 71, (0o600,)), (29, 31, (4096, 0o600))):
    if (found := libc.syscall(make, 0, *more)) >= 0:
        did.append(make)
        libc.syscall(take, found, 0, 0) if make != 64 else libc.syscall(take, found, 0, 0, 0)""",
    ),
    attempt(
        "queues of messages",
        """
did = libc.syscall(240, b"turnwise-" + G["abstract"].encode(), 0o102, 0o600, None) >= 0""",
        control=False,
    ),
    attempt(
        "keys",
        """
did = libc.syscall(248, b"user", b"turnwise", b"x", 1, -3) >= 0 or libc.syscall(249, b"user", b"x", None, -3) >= 0
did = did or libc.syscall(250, 0, -3, 1) >= 0 or libc.syscall(250, 1, b"turnwise") >= 0""",
        control=False,
    ),
    attempt(
        "a descriptor of the process above it",
        """
pid = os.getppid() or 1
pidfd = os.pidfd_open(pid) if tries(lambda: os.close(os.pidfd_open(pid))) else -1
did = [number for number in range(3, 12) if libc.syscall(438, pidfd, number, 0) >= 0]""",
    ),
    attempt(
        "the memory of the process above it",
        """
pid, local = os.getppid() or 1, ctypes.create_string_buffer(8)
ours = (ctypes.c_size_t * 2)(ctypes.addressof(local), 8)
did = [n for n in (310, 311) if libc.syscall(n, pid, ours, 1, (ctypes.c_size_t * 2)(id(None), 8), 1, 0) not in (-1, 0)]
did = did[:1] or tries(lambda: os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR)))""",
    ),
    attempt(
        "trees of mounts",
        """
did = libc.syscall(428, -100, b"/", 0) >= 0 or libc.syscall(430, b"tmpfs", 0) >= 0""",
    ),
    attempt(
        "a filter of its own that asks it",
        """
lines = (ctypes.c_uint64 * 1)(0x7FFF000000000006)
program = (ctypes.c_uint64 * 2)(1, ctypes.addressof(lines))
libc.prctl(38, 1, 0, 0, 0)
did = libc.syscall(317, 1, 8, program) >= 0 or libc.prctl(22, 2, program, 0, 0) == 0""",
        control=False,
    ),
    attempt(
        "priorities, processors and memory that stays",
        """
did = [name for name, call in {
    "priority": lambda: os.setpriority(os.PRIO_PROCESS, 0, 5),
    "processors": lambda: os.sched_setaffinity(0, os.sched_getaffinity(0)),
    "scheduler": lambda: os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)),
}.items() if tries(call)]
did += [n for n in (149, 151, 251) if libc.syscall(n, 1, 0, 7) == 0]""",
    ),
    attempt(
        "handles of files",
        """
handle = ctypes.create_string_buffer(b"\\x80\\0\\0\\0", 136)
did = libc.syscall(303, -100, b"/", handle, ctypes.byref(ctypes.c_int()), 0) >= 0""",
    ),
    attempt(
        "leases and notices of files",
        """
import fcntl
open("leased", "w").close()
file = os.open("leased", os.O_RDONLY)
folder = os.open(".", os.O_RDONLY)
did = tries(lambda: fcntl.fcntl(file, 1024, 0) and None) or tries(lambda: fcntl.fcntl(folder, 1026, 2) and None)""",
    ),
    attempt(
        "locks of open files",
        """
import fcntl, struct
lock = struct.pack("hhqqi4x", 1, 0, 0, 1, 0)
def take(command):
    fcntl.fcntl(os.open(f"locked{command}", os.O_CREAT | os.O_RDWR), command, lock)
did = [command for command in (6, 37) if tries(lambda: take(command))]""",
    ),
    attempt(
        "moving data between descriptors unseen",
        """
read, write = os.pipe()
file = os.open("moved", os.O_CREAT | os.O_RDWR)
os.write(file, b"x" * 100)
zero = ctypes.c_int64(0)
did = [n for n in (275, 276, 278) if libc.syscall(n, file, ctypes.byref(zero), write, None, 10, 0) > 0]""",
    ),
]
