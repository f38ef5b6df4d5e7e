"""A small suite of the identity environment, and the command that plays it in this process."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from runners import bench
from runners.benching.fingerprints import fingerprint, made
from runners.benching.suites import SUITES, Entry, Suite

Command = Callable[..., dict[str, Any]]


def pinned(entry: Entry) -> Entry:
    """The entry with the fingerprint that its tasks have here."""
    fixed = made(entry)
    return replace(entry, fingerprint=fingerprint(fixed.env, fixed.tasks))


def small_suite(name: str = "small-1") -> Suite:
    """Short and long rows of words, six tasks each."""
    short = Entry("short", "identity", "", {"length": 2}, tasks=6)
    long = Entry("long", "identity", "", {"length": 3}, tasks=6)
    return Suite(name, "Words to repeat.", (pinned(short), pinned(long)))


def command(folder: Path, patch: pytest.MonkeyPatch, suite: Suite) -> Command:
    """What runs the command on the suite and gives the content of its file."""
    patch.setitem(cast("dict[str, Suite]", SUITES), suite.name, suite)
    patch.setenv("COLUMNS", "200")

    def run(*argv: str) -> dict[str, Any]:
        out = folder / "row.json"
        patch.setattr(sys, "argv", ["turnwise bench", "--suite", suite.name, "--out", str(out), *argv])
        bench.main()
        result: dict[str, Any] = json.loads(out.read_text("utf-8"))
        return result

    return run
