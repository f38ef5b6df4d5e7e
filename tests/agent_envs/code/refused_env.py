"""The coding environment on a machine that lacks something: ``refused_env.py LACKS,… SANDBOX``."""

import os
import sys

from attack_run import become_ordinary
from refused_main import _CALLS, deny
from small_tasks import small

from agent_envs.code.sandbox.zygote import linux
from runners.command_line.errors import run_program

_REMOUNT, _READ_ONLY = 32, 1


def without_temporary_folders() -> None:
    """Makes them read-only, for this process and its children; this project may lie in one. Takes root."""
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    for folder in ("/tmp", "/var/tmp", "/dev/shm"):
        linux.mount(folder, folder, None, linux.MS_BIND)
        linux.mount("none", folder, None, linux.MS_BIND | _REMOUNT | _READ_ONLY)
    os.chdir("/")


def main() -> None:
    lacks, name = sys.argv[1].split(","), sys.argv[2]
    if "temporary folder" in lacks:
        without_temporary_folders()
    if os.geteuid() == 0:
        project = next(path for path in sys.path if os.path.exists(os.path.join(path, "pyproject.toml")))
        become_ordinary([sys.base_prefix, sys.prefix, project])
    deny([lack for lack in lacks if lack in _CALLS])
    run_program(lambda: print(small(sandbox=name).sandbox.capabilities.backend))


if __name__ == "__main__":
    main()
