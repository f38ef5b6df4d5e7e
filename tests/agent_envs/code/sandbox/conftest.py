"""One sandbox of each kind for the tests that ask all of them the same."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from agent_envs.code.sandbox import Limits, Sandbox, SandboxUnavailable
from agent_envs.code.sandbox.choose import open_sandbox

LIMITS = Limits(seconds=15, memory_mb=128, processes=16, disk_mb=16, output_kb=1024)
WALLS = ["namespace", "landlock", "unsafe-process", pytest.param("docker", marks=pytest.mark.docker)]


def opened(name: str, limits: Limits = LIMITS, workers: int = 2) -> Sandbox:
    """The sandbox, or a skip that says why there is none here; a failure where it must be there."""
    try:
        return open_sandbox(name, limits=limits, workers=workers)
    except SandboxUnavailable as error:
        if os.environ.get("TURNWISE_NEEDS_DOCKER" if name == "docker" else "CI"):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="module", params=WALLS)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with opened(request.param) as sandbox:
        yield sandbox
