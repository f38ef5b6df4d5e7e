"""The coding environment on a machine that lacks something: ``refused_env.py LACKS,… SANDBOX``."""

from __future__ import annotations

import os
import sys

from attack_run import become_ordinary
from refused_main import _CALLS, deny
from small_tasks import small

from runners.config import run_program


def main() -> None:
    lacks, name = sys.argv[1].split(","), sys.argv[2]
    if os.geteuid() == 0:
        project = next(path for path in sys.path if os.path.exists(os.path.join(path, "pyproject.toml")))
        become_ordinary([sys.base_prefix, sys.prefix, project])
    deny([lack for lack in lacks if lack in _CALLS])
    run_program(lambda: print(small(sandbox=name).sandbox.capabilities.backend))


if __name__ == "__main__":
    main()
