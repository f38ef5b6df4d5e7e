"""Environments that need an optional package."""

import os
import shutil
from pathlib import Path

import pytest

NEEDS = {"babyai": "minigrid", "reasoning_gym": "reasoning_gym", "textworld_express": "textworld_express"}
"""Name of the environment → the package."""


def skip_without(name: str) -> None:
    """Skips the test where an environment's package is missing, or the Java that it needs; with CI set Java must be."""
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    if name == "textworld_express" and shutil.which(java()) is None:
        missing = "textworld_express needs Java, and there is none"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)


def java() -> str:
    """The Java that is started."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"
