"""What every rollout backend promises: the same episodes bit for bit, never with another policy than asked for.

A test file of a backend makes a subclass of `WorkersContract`, gives it the fixture ``workers``, and takes over the
fixtures of this file by their names.
"""

import hashlib
import os
import pickle
import signal
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
from agents.rollout.quota import Quota
from agents.tree.episode import Job
from runners.loading.base_model import load_base
from runners.run_folder.runs import base_of
from runners.workers.base import BASE_MODEL, PlaySpec, StaleWorker, WorkerLost, Workers
from runners.workers.controller import Controller
from runners.workers.process import ProcessWorkers
from runners.workers.serve import WorkerSetup
from runners.workers.worker import PlaySettings

Parts = tuple[WorkerSetup, bytes, list[Job]]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory, own_cache: None) -> Parts:
    """(what a worker is made of, an adapter that changes the policy, jobs)."""
    run = settings(tmp_path_factory.mktemp("workers") / "run")
    base = base_of(run, Console(quiet=True), "cpu")
    play = PlaySettings(run.env, run.react, run.hosts, run.faults, slots=8, exact=True)
    actor = ActorCritic(load_base(base).model, run.lora, critic=None)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in actor.policy_parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    tasks = IdentityEnv().tasks("valid")
    jobs = [Job(tasks[i % 10], i // 10, 3) for i in range(20)]
    return WorkerSetup(base, run.lora, play), save(actor.policy_state()), jobs


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def bits(played: Played) -> list[Any]:
    assert played.faults == []
    return [(e.job.id, e.texts, [(a.tokens, a.logp, a.entropy, a.reward) for a, _ in e.turns]) for e in played.episodes]


@pytest.fixture(scope="module")
def reference(parts: Parts) -> dict[bytes, list[Any]]:
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


class Doomed:
    """A worker's process that is killed with every portion in its hands, before it can answer."""

    def __init__(self, process: Any) -> None:
        self._process = process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._process, name)

    def send_bytes(self, data: bytes, timeout: float | None = None) -> None:
        message = pickle.loads(data)
        doomed = isinstance(message, tuple) and message[0] == "play"
        if doomed:  # stopped first: else it could end the portion before the kill arrives
            os.kill(self._process.pid, signal.SIGSTOP)
        self._process.send_bytes(data, timeout)
        if doomed:
            os.kill(self._process.pid, signal.SIGKILL)


def dies_again_and_again(workers: ProcessWorkers, parts: Parts) -> None:
    """Ends ``workers``, whose processes are `Doomed`, and checks what the run is told."""
    try:
        workers.start()
        workers.load(0, BASE_MODEL, sha(BASE_MODEL))
        with pytest.raises(WorkerLost, match="lost 3 times over the same episodes: signal SIGKILL") as lost:
            workers.submit(PlaySpec(tuple(parts[2]), SamplingSettings()), 0).result()
        assert "\n" not in str(lost.value)
    finally:
        workers.close()


def play(workers: Workers, parts: Parts, data: bytes, version: int) -> Played:
    controller = Controller(workers, 8, parts[0].play.faults)
    workers.load(version, data, sha(data))
    controller.version = version
    return controller.play(parts[2], SamplingSettings())


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state not in "ZX"


class WorkersContract:
    """Needs the fixture ``workers``, whose start was awaited."""

    def test_the_same_episodes_bit_for_bit(
        self, workers: Workers, parts: Parts, reference: dict[bytes, list[Any]]
    ) -> None:
        for version, data in ((4, BASE_MODEL), (5, parts[1]), (6, BASE_MODEL)):
            played = play(workers, parts, data, version)
            assert bits(played) == reference[data]
            assert {a.version for e in played.episodes for a, _ in e.turns} == {version}

    def test_what_a_quota_cuts_goes_on(self, workers: Workers, parts: Parts, reference: dict[bytes, list[Any]]) -> None:
        workers.load(3, BASE_MODEL, sha(BASE_MODEL))
        spec = PlaySpec(tuple(parts[2][:8]), SamplingSettings(), quota=Quota(1, 3))
        first = workers.submit(spec, 3).result()
        assert (len(first.outcomes), len(first.cut)) == (3, 5)
        begun = tuple(cut.episode for cut in first.cut if cut.episode is not None)
        quota = Quota(1, len(first.cut), begun=begun)
        rest = workers.submit(
            PlaySpec(tuple(cut.job for cut in first.cut), SamplingSettings(), quota=quota), 3
        ).result()
        texts = {e.job.id: e.texts for e in first.episodes + rest.episodes}
        assert texts == {job: said for job, said, _ in reference[BASE_MODEL] if job in texts} and len(texts) == 8

    def test_another_version_is_never_played(self, workers: Workers, parts: Parts) -> None:
        workers.load(7, BASE_MODEL, sha(BASE_MODEL))
        spec = PlaySpec(tuple(parts[2][:2]), SamplingSettings())
        for wrong in (6, 8):
            with pytest.raises(StaleWorker, match=f"policy {wrong} was asked for, and the worker has 7"):
                workers.submit(spec, wrong).result()
        assert len(workers.submit(spec, 7).result().episodes) == 2

    def test_damaged_bytes_are_refused(self, workers: Workers, parts: Parts) -> None:
        workers.load(9, BASE_MODEL, sha(BASE_MODEL))
        flipped = bytearray(parts[1])
        flipped[-5] ^= 1
        with pytest.raises(ValueError, match="damaged on its way"):
            workers.load(10, bytes(flipped), sha(parts[1]))
        spec = PlaySpec(tuple(parts[2][:2]), SamplingSettings())
        assert len(workers.submit(spec, 9).result().episodes) == 2

    def test_progress_is_heard(self, workers: Workers, parts: Parts) -> None:
        workers.load(12, BASE_MODEL, sha(BASE_MODEL))
        heard: list[int] = []
        workers.submit(PlaySpec(tuple(parts[2][:5]), SamplingSettings()), 12, lambda: heard.append(1)).result()
        assert len(heard) == 5
