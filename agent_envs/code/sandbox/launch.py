"""Run as a child process: turns itself into the keeper, a bare interpreter without an environment.

Invariant: nothing of the process that uses the sandbox is left in the keeper's memory: no variable, no module, no key.
"""

from __future__ import annotations

import contextlib
import os
import sys

from agent_envs.code.sandbox import bundle
from agent_envs.isolation.child import connect


def main() -> None:
    """Waits for the bundle and becomes what it says."""
    channel = connect()
    code = channel.recv_bytes(30)
    channel.close()
    fd = os.memfd_create("bundle")  # it holds any length; a pipe would have to be fed while nobody reads it
    os.write(fd, code)
    os.lseek(fd, 0, os.SEEK_SET)
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # the list itself is closed by now
            os.set_inheritable(number, True)
    python = os.path.realpath(sys.executable)
    os.execve(python, [python, *bundle.OPTIONS, str(fd)], bundle.ENVIRONMENT)


if __name__ == "__main__":
    main()
