"""The worker protocol, on every backend: the same episodes bit for bit, never with another policy than asked for."""

import hashlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from run_cases import settings
from safetensors.torch import save

from agent_envs.identity.env import IdentityEnv
from agents.engine import SamplingSettings
from agents.model.actor_critic import ActorCritic
from agents.rollout.play import Played
from agents.tree.episode import Job
from runners.command_line.errors import UserError
from runners.loading.base_model import load_base
from runners.run_folder.runs import base_of
from runners.workers.base import BASE_MODEL, PlaySpec, StaleWorker, WorkerLost, Workers
from runners.workers.controller import Controller
from runners.workers.local import LocalWorkers
from runners.workers.process import ProcessWorkers
from runners.workers.serve import WorkerSetup
from runners.workers.worker import PlaySettings

BACKENDS = {"local": 0, "one process": 1, "two processes": 2}

pytestmark = pytest.mark.runs


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory, own_cache: None) -> tuple[WorkerSetup, bytes, list[Job]]:
    """(what a worker is made of, an adapter that changes the policy, jobs)."""
    run = settings(tmp_path_factory.mktemp("workers") / "run")
    base = base_of(run, Console(quiet=True), "cpu")
    play = PlaySettings(run.train.env, run.env, run.react, run.hosts, run.faults, slots=8, exact=True)
    actor = ActorCritic(load_base(base).model, run.lora, critic=None)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in actor.policy_parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    tasks = IdentityEnv().tasks("valid")
    jobs = [Job(tasks[i % 10], i // 10, 3) for i in range(20)]
    return WorkerSetup(base, run.lora, play), save(actor.policy_state()), jobs


def make(setup: WorkerSetup, count: int) -> Workers:
    return ProcessWorkers(setup, count) if count else LocalWorkers(setup.make)


@pytest.fixture(scope="module", params=BACKENDS)
def workers(request: pytest.FixtureRequest, parts: tuple[WorkerSetup, bytes, list[Job]]) -> Iterator[Workers]:
    made = make(parts[0], BACKENDS[request.param])
    try:
        assert "slots" in made.start()
        yield made
    finally:
        made.close()
        made.close()


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def bits(played: Played) -> list[Any]:
    assert played.faults == []
    return [(e.job.id, e.texts, [(a.tokens, a.logp, a.entropy, a.reward) for a, _ in e.turns]) for e in played.episodes]


@pytest.fixture(scope="module")
def reference(parts: tuple[WorkerSetup, bytes, list[Job]]) -> dict[bytes, list[Any]]:
    """The bits of all jobs, by policy, played in portions of eight in this process."""
    setup, adapter, jobs = parts
    worker = setup.make()
    found: dict[bytes, list[Any]] = {}
    for version, data in enumerate((BASE_MODEL, adapter)):
        worker.load(version, data, sha(data))
        found[data] = []
        for i in range(0, len(jobs), 8):
            found[data] += bits(worker.play(PlaySpec(tuple(jobs[i : i + 8]), SamplingSettings()), version))
    worker.close()
    assert found[BASE_MODEL] != found[adapter], "the adapter must change something"
    return found


def play(workers: Workers, parts: tuple[WorkerSetup, bytes, list[Job]], data: bytes, version: int) -> Played:
    controller = Controller(workers, 8, parts[0].play.faults)
    workers.load(version, data, sha(data))
    controller.version = version
    return controller.play(parts[2], SamplingSettings())


def test_the_same_episodes_bit_for_bit(
    workers: Workers, parts: tuple[WorkerSetup, bytes, list[Job]], reference: dict[bytes, list[Any]]
) -> None:
    for version, data in ((4, BASE_MODEL), (5, parts[1]), (6, BASE_MODEL)):
        played = play(workers, parts, data, version)
        assert bits(played) == reference[data]
        assert {a.version for e in played.episodes for a, _ in e.turns} == {version}


def test_another_version_is_never_played(workers: Workers, parts: tuple[WorkerSetup, bytes, list[Job]]) -> None:
    workers.load(7, BASE_MODEL, sha(BASE_MODEL))
    spec = PlaySpec(tuple(parts[2][:2]), SamplingSettings())
    for wrong in (6, 8):
        with pytest.raises(StaleWorker, match=f"policy {wrong} was asked for, and the worker has 7"):
            workers.submit(spec, wrong).result()
    assert len(workers.submit(spec, 7).result().episodes) == 2


def test_damaged_bytes_are_refused(workers: Workers, parts: tuple[WorkerSetup, bytes, list[Job]]) -> None:
    workers.load(9, BASE_MODEL, sha(BASE_MODEL))
    flipped = bytearray(parts[1])
    flipped[-5] ^= 1
    with pytest.raises(ValueError, match="damaged on its way"):
        workers.load(10, bytes(flipped), sha(parts[1]))
    spec = PlaySpec(tuple(parts[2][:2]), SamplingSettings())
    assert len(workers.submit(spec, 9).result().episodes) == 2


def test_a_killed_worker_starts_again_with_the_same_policy(
    workers: Workers, parts: tuple[WorkerSetup, bytes, list[Job]], reference: dict[bytes, list[Any]]
) -> None:
    workers.load(11, parts[1], sha(parts[1]))
    workers.kill(0)
    assert bits(play(workers, parts, parts[1], 11)) == reference[parts[1]]


def test_progress_is_heard(workers: Workers, parts: tuple[WorkerSetup, bytes, list[Job]]) -> None:
    workers.load(12, BASE_MODEL, sha(BASE_MODEL))
    heard: list[int] = []
    workers.submit(PlaySpec(tuple(parts[2][:5]), SamplingSettings()), 12, lambda: heard.append(1)).result()
    assert len(heard) == 5


# -- what only processes can do --------------------------------------------------------------------------------------


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def pids(workers: ProcessWorkers) -> list[int]:
    return [slot.child.pid for slot in workers._slots if slot.child is not None]


def test_a_worker_killed_while_it_plays_costs_nothing_but_time(
    parts: tuple[WorkerSetup, bytes, list[Job]], reference: dict[bytes, list[Any]]
) -> None:
    setup, adapter, jobs = parts
    workers = ProcessWorkers(setup, 1)
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
    finally:
        workers.close()
    assert not any(map(alive, killed))


def test_a_worker_that_dies_again_and_again_ends_the_run_in_one_line(
    parts: tuple[WorkerSetup, bytes, list[Job]],
) -> None:
    setup, _, jobs = parts
    workers = ProcessWorkers(setup, 1)
    try:
        workers.start()
        workers.load(0, BASE_MODEL, sha(BASE_MODEL))
        with pytest.raises(WorkerLost, match="lost 3 times over the same episodes: signal SIGKILL") as lost:
            workers.submit(
                PlaySpec(tuple(jobs), SamplingSettings()), 0, lambda: os.kill(pids(workers)[0], signal.SIGKILL)
            ).result()
        assert "\n" not in str(lost.value)
    finally:
        workers.close()


def test_what_the_user_can_mend_comes_back_as_one_line(parts: tuple[WorkerSetup, bytes, list[Job]]) -> None:
    setup = replace(parts[0], base=replace(parts[0].base, source="/nowhere"))
    workers = ProcessWorkers(setup, 1)
    try:
        with pytest.raises(UserError, match="no model at '/nowhere'"):
            workers.start()
    finally:
        workers.close()


def test_nothing_is_left_behind(parts: tuple[WorkerSetup, bytes, list[Job]]) -> None:
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


def test_a_worker_has_no_policy_before_it_loaded_one(parts: tuple[WorkerSetup, bytes, list[Job]]) -> None:
    """A worker that was started again answers nothing with its initial weights."""
    worker = parts[0].make()
    try:
        with pytest.raises(StaleWorker, match="policy 0 was asked for, and the worker has None"):
            worker.play(PlaySpec(tuple(parts[2][:1]), SamplingSettings()), 0)
    finally:
        worker.close()
