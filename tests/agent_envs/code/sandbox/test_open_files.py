"""No socket is left open by a sandbox that cannot start, or cannot run."""

from __future__ import annotations

import gc
import os
import resource
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agent_envs.code.sandbox import SandboxFault, SandboxUnavailable
from agent_envs.code.sandbox.choose import open_sandbox
from agent_envs.code.sandbox.local import UnsafeProcess
from agent_envs.isolation.child import Child


@contextmanager
def complaints() -> Iterator[list[str]]:
    """What Python says of files that nobody closed."""
    gc.collect()
    said: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        yield said
        gc.collect()
    said += [str(each.message) for each in caught if issubclass(each.category, ResourceWarning)]


@contextmanager
def most_files(more: int) -> Iterator[None]:
    """Inside, no more than ``more`` further files can be opened."""
    low = os.open(os.devnull, os.O_RDONLY)
    os.close(low)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (low + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_socket_that_nobody_closes_is_told_of() -> None:  # the control of them all
    with complaints() as said:
        socket.socket(socket.AF_UNIX)
    assert len(said) == 1 and "unclosed <socket.socket" in said[0]


def test_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("docker")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    with complaints() as said, pytest.raises(SandboxUnavailable, match="no docker engine answers"):
        open_sandbox("docker")
    assert said == []


@pytest.mark.parametrize("kind", ["child", "sandbox"])
def test_too_few_open_files_at_every_step(kind: str) -> None:
    refusals = 0
    with complaints() as said:
        while True:
            try:
                with most_files(refusals):
                    made: Child | UnsafeProcess = (
                        Child("agent_envs.code.sandbox.launch") if kind == "child" else UnsafeProcess()
                    )
                break
            except (OSError, SandboxUnavailable) as error:
                assert "Too many open files" in str(error)
            refusals += 1
        made.kill() if isinstance(made, Child) else made.close()
    assert refusals > 4 and said == []


def test_an_interrupt_while_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("agent_envs.code.sandbox.warm._report", stopped)
    with complaints() as said, pytest.raises(KeyboardInterrupt):
        UnsafeProcess()
    assert said == []


def test_a_run_without_a_connection_is_a_fault_and_its_slot_is_not_lost() -> None:
    with UnsafeProcess(workers=1) as sandbox:
        with complaints() as said, most_files(0), pytest.raises(SandboxFault, match="Too many open files"):
            sandbox.run(["true"])
        assert said == [] and sandbox.run(["true"]).ok
