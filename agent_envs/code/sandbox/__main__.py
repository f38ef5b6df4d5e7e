"""``python -m agent_envs.code.sandbox [NAME]``: which sandbox this machine allows, and what it keeps from a program.

Invariant: what stands in the way is one line, and exit status 2.
"""

from __future__ import annotations

import argparse
import sys

from agent_envs.code.sandbox.choose import NAMES, open_sandbox
from agent_envs.code.sandbox.interface import Limits
from agent_envs.core import SettingsError


def main() -> int:
    """The program's exit status."""
    parser = argparse.ArgumentParser(prog="python -m agent_envs.code.sandbox", description=__doc__)
    parser.add_argument("name", nargs="?", default="auto", choices=NAMES)
    try:
        with open_sandbox(parser.parse_args().name) as sandbox:
            able = sandbox.capabilities
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    limits = Limits()
    for name in ("backend", "files", "network", "processes", "memory", "disk", "signals", "syscalls"):
        print(f"{name + ':':<11}{getattr(able, name)}")
    print(f"bound:     {able.bound_mb(limits)} MiB and {able.processes_for(limits)} processes a run, by default")
    for line in able.exceptions:
        print(f"but:       {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
