"""The words that call this suite's programs here, for lines that a user may copy."""

import os
import shutil
import sys
from pathlib import Path


def command(name: str) -> str:
    """The words that call the program ``name``, in the way in which this one was called."""
    called = Path(sys.argv[0].split(" ")[0])
    if called.suffix != ".py":
        return f"turnwise {name}"
    python = "python" if shutil.which("python") == sys.executable else os.path.relpath(sys.executable)
    return f"{python} {called.with_name(f'{name}.py')}"
