"""``python -m agent_envs.code.sandbox NAME`` on a machine that lacks something: ``refused_main.py LACKS,… NAME``.

It drops root's rights first where it can: what a machine lacks is what an ordinary user lacks.
"""

from __future__ import annotations

import errno
import os
import runpy
import struct
import sys

from attack_run import become_ordinary

from agent_envs.code.sandbox.zygote import linux
from agent_envs.code.sandbox.zygote.syscalls import numbers

_X86 = os.uname().machine == "x86_64"
_CALLS = {
    "user namespaces": (272 if _X86 else 97, errno.EPERM),
    "more user namespaces": (272 if _X86 else 97, errno.ENOSPC),
    "mounts": (165 if _X86 else 40, errno.EACCES),
    "landlock": (444, errno.EOPNOTSUPP),
    "setuid": (117 if _X86 else 147, errno.EPERM),
    "fork": (numbers(os.uname().machine)["clone"], errno.EAGAIN),
}
_REMOUNT, _READ_ONLY = 32, 1


def deny(names: list[str]) -> None:
    """From now on these system calls fail in this process and its children."""
    lines = [(0x20, 0, 0, 0)]
    for name in names:
        number, error = _CALLS[name]
        lines += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | error)]
    lines.append((0x06, 0, 0, 0x7FFF0000))
    linux.no_new_privileges()
    linux.install_filter(b"".join(struct.pack("<HBBI", *line) for line in lines))


def main() -> None:
    lacks, name = sys.argv[1].split(","), sys.argv[2]
    project = next(path for path in sys.path if os.path.exists(os.path.join(path, "pyproject.toml")))
    if "temporary folder" in lacks:
        linux.unshare(linux.CLONE_NEWNS)
        linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
        for folder in ("/tmp", "/var/tmp", "/dev/shm"):
            # As it is, but read-only: this project may lie in it.
            linux.mount(folder, folder, None, linux.MS_BIND)
            linux.mount("none", folder, None, linux.MS_BIND | _REMOUNT | _READ_ONLY)
        os.chdir("/")
    if os.geteuid() == 0 and "setuid" not in lacks:
        become_ordinary([sys.base_prefix, sys.prefix, project])
    deny([lack for lack in lacks if lack in _CALLS])
    sys.argv = ["sandbox", name]
    runpy.run_module("agent_envs.code.sandbox", run_name="__main__")


if __name__ == "__main__":
    main()
