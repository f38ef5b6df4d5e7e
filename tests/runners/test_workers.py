"""The worker protocol in this process and in others, and what is promised of processes that are killed."""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import worker_contract
from worker_contract import Doomed, Parts, WorkersContract, alive, bits, play, sha

from agent_envs.isolation.child import Child
from agents.engine import SamplingSettings
from runners.command_line.errors import UserError
from runners.workers.base import BASE_MODEL, PlaySpec, StaleWorker, Workers
from runners.workers.controller import Controller
from runners.workers.local import LocalWorkers
from runners.workers.process import SERVE, ProcessWorkers
from runners.workers.serve import WorkerSetup
from runners.workers.states import WorkerEvent, WorkerState

BACKENDS = {"local": 0, "one process": 1, "two processes": 2}

pytestmark = pytest.mark.runs
parts, reference = worker_contract.parts, worker_contract.reference


def make(setup: WorkerSetup, count: int) -> Workers:
    return ProcessWorkers(setup, count) if count else LocalWorkers(setup.make)


@pytest.fixture(scope="module", params=BACKENDS)
def workers(request: pytest.FixtureRequest, parts: Parts) -> Iterator[Workers]:
    made = make(parts[0], BACKENDS[request.param])
    try:
        assert "slots" in made.start()
        yield made
    finally:
        made.close()
        made.close()


class TestWorkers(WorkersContract):
    pass


# -- what only processes can do --------------------------------------------------------------------------------------


def pids(workers: ProcessWorkers) -> list[int]:
    return [slot.child.pid for slot in workers._slots if slot.child is not None]


@pytest.mark.parametrize("workers", [name for name, count in BACKENDS.items() if count], indirect=True)
def test_a_killed_worker_starts_again_with_the_same_policy(
    workers: ProcessWorkers, parts: Parts, reference: dict[bytes, list[Any]]
) -> None:
    workers.load(11, parts[1], sha(parts[1]))
    os.kill(pids(workers)[0], signal.SIGKILL)
    assert bits(play(workers, parts, parts[1], 11)) == reference[parts[1]]


def test_a_worker_killed_while_it_plays_costs_nothing_but_time(parts: Parts, reference: dict[bytes, list[Any]]) -> None:
    setup, adapter, jobs = parts
    events: list[WorkerEvent] = []
    workers = ProcessWorkers(setup, 1, tell=events.append)
    try:
        workers.start()
        workers.load(1, adapter, sha(adapter))
        (before,) = pids(workers)
        killed: list[int] = []

        def shoot() -> None:
            (now,) = pids(workers)
            if len(killed) < 2 and now not in killed:
                killed.append(now)
                os.kill(now, signal.SIGKILL)

        controller = Controller(workers, 8, setup.play.faults)
        controller.version = 1
        played = controller.play(jobs, SamplingSettings(), shoot)
        assert bits(played) == reference[adapter]
        assert killed[0] == before != killed[1]
        lived = ["starting", "stale", "healthy"]
        assert [str(e.state) for e in events] == [*lived, "dead", *lived, "dead", *lived]
        assert all("signal SIGKILL" in e.why for e in events if e.state is WorkerState.DEAD)
    finally:
        workers.close()
    assert not any(map(alive, killed))


def test_a_worker_that_dies_again_and_again_ends_the_run_in_one_line(parts: Parts) -> None:
    worker_contract.dies_again_and_again(ProcessWorkers(parts[0], 1, lambda: Doomed(Child(SERVE))), parts)


def test_what_the_user_can_mend_comes_back_as_one_line(parts: Parts) -> None:
    setup = replace(parts[0], base=replace(parts[0].base, source="/nowhere"))
    workers = ProcessWorkers(setup, 1)
    try:
        with pytest.raises(UserError, match="no model at '/nowhere'"):
            workers.start()
    finally:
        workers.close()


def test_nothing_is_left_behind(parts: Parts) -> None:
    workers = ProcessWorkers(parts[0], 2)
    workers.start()
    workers.load(0, BASE_MODEL, sha(BASE_MODEL))
    workers.submit(PlaySpec(tuple(parts[2][:2]), SamplingSettings()), 0).result()
    mine = pids(workers)
    children = [
        int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal() and parent(entry) in mine
    ]
    assert len(mine) == 2 and children, "the environments live in processes of their own"
    workers.close()
    until = time.monotonic() + 5
    while any(map(alive, [*mine, *children])) and time.monotonic() < until:
        time.sleep(0.02)
    assert not any(map(alive, [*mine, *children]))


def parent(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
    except (OSError, IndexError):
        return -1


def test_a_worker_has_no_policy_before_it_loaded_one(parts: Parts) -> None:
    """A worker that was started again answers nothing with its initial weights."""
    worker = parts[0].make()
    try:
        with pytest.raises(StaleWorker, match="policy 0 was asked for, and the worker has None"):
            worker.play(PlaySpec(tuple(parts[2][:1]), SamplingSettings()), 0)
    finally:
        worker.close()
