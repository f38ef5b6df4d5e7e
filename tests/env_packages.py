"""Environments that need an optional package. Their tests are marked ``adapters``."""

import os
import shutil
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

NEEDS = {
    "babyai": "minigrid",
    "reasoning_gym": "reasoning_gym",
    "tau2": "tau2",
    "textworld": "textworld",
    "textworld_express": "textworld_express",
}
"""Name of the environment → the package."""


def named(names: Iterable[str]) -> list[ParameterSet]:
    """Environments as parameters of a test, in alphabetical order."""
    return [pytest.param(name, marks=[pytest.mark.adapters] * (name in NEEDS)) for name in sorted(names)]


def skip_without(name: str) -> None:
    """Skips the test where an environment's package is missing, or the Java that it needs; with CI set both must be."""
    if name in NEEDS and find_spec(NEEDS[name]) is None:
        _miss(f"{name} needs {NEEDS[name]}, which is not installed")
    if name == "textworld_express" and shutil.which(java()) is None:
        _miss("textworld_express needs Java, and there is none")


def _miss(what: str) -> None:
    """Skips the test; with CI set it fails."""
    pytest.fail(what) if os.environ.get("CI") else pytest.skip(what)


def java() -> str:
    """The Java that is started."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"
