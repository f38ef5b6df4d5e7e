"""Rollout workers on Ray: the worker protocol, actors and processes that are killed, a cluster that nobody else enters.

All tests share one cluster, which `workers` starts; those of other settings start processes on it.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import worker_contract
from worker_contract import Doomed, Parts, WorkersContract, alive, bits, play, sha

from agent_envs.isolation.faults import FaultKind
from agents.engine import SamplingSettings
from runners.command_line.errors import UserError
from runners.settings.ray_settings import RaySettings
from runners.workers import ray_guard
from runners.workers.controller import Controller
from runners.workers.process import ProcessWorkers
from runners.workers.ray_cluster import RayWorkers

# Not imported to find out: Ray reads its environment when it is imported.
ABSENT = find_spec("ray") is None and not os.environ.get("CI")
pytestmark = [
    pytest.mark.runs,
    pytest.mark.skipif(ABSENT, reason="needs the extra ray"),
]
parts, reference = worker_contract.parts, worker_contract.reference

JOIN = """
import ray, sys
ray.init(address=sys.argv[1], log_to_driver=False)
print("inside")
"""


@pytest.fixture(scope="module")
def workers(parts: Parts) -> Iterator[RayWorkers]:
    # A tenth of a processor each, so that further workers have room beside these two.
    made = RayWorkers(parts[0], 2, RaySettings(cpus=0.1))
    try:
        said = made.start()
        assert "slots" in said and "on 1 node of a Ray cluster of this run" in said and said.count("Ray 2.") == 2
        yield made
    finally:
        folder = made._cluster._folder
        left = ray_guard.marked(folder)
        made.close()
        made.close()
        assert len(left) > 5 and not any(map(alive, set(left) - {os.getpid()}))
        assert folder and not Path(folder).exists()


class TestRayWorkers(WorkersContract):
    pass


def processes(workers: RayWorkers, name: str) -> list[int]:
    """Those of the cluster whose command line holds ``name``."""
    found = []
    for pid in ray_guard.marked(workers._cluster._folder):
        with suppress(OSError):  # it ended meanwhile
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            if name in line and pid != os.getpid():
                found.append(pid)
    return found


KINDS = {"actor": "ray::WorkerActor", "worker process": "runners.workers.serve"}


@pytest.mark.parametrize("kind", KINDS)
def test_killed_workers_start_again_with_the_same_policy(
    kind: str, workers: RayWorkers, parts: Parts, reference: dict[bytes, list[Any]]
) -> None:
    workers.load(11, parts[1], sha(parts[1]))
    killed = processes(workers, KINDS[kind])
    assert len(killed) == 2
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    assert bits(play(workers, parts, parts[1], 11)) == reference[parts[1]]
    assert not any(map(alive, killed)) and len(processes(workers, KINDS["worker process"])) == 2


def test_an_actor_killed_while_it_plays_costs_nothing_but_time(
    workers: RayWorkers, parts: Parts, reference: dict[bytes, list[Any]]
) -> None:
    killed: list[int] = []

    def shoot() -> None:
        now = [pid for pid in processes(workers, KINDS["actor"]) if pid not in killed]
        if len(killed) < 2 and now:
            killed.append(now[0])
            os.kill(now[0], signal.SIGKILL)

    controller = Controller(workers, 8, parts[0].play.faults)
    workers.load(13, parts[1], sha(parts[1]))
    controller.version = 13
    played = controller.play(parts[2], SamplingSettings(), shoot)
    assert bits(played) == reference[parts[1]]
    assert len(killed) == 2 and not any(map(alive, killed))


def test_an_environment_host_that_is_killed_costs_an_attempt(workers: RayWorkers, parts: Parts) -> None:
    killed: list[int] = []

    def shoot() -> None:
        hosts = processes(workers, "agent_envs.isolation.host")
        if not killed and hosts:
            killed.append(hosts[0])
            os.kill(hosts[0], signal.SIGKILL)

    workers.load(14, parts[1], sha(parts[1]))
    controller = Controller(workers, 8, parts[0].play.faults)
    controller.version = 14
    played = controller.play(parts[2], SamplingSettings(), shoot)
    assert killed and {fault.kind for fault in played.faults} <= {FaultKind.EXITED}
    ended = sorted((e.job.task.id, e.job.sample) for e in played.episodes)
    assert ended == sorted((job.task.id, job.sample) for job in parts[2])
    # A fault is an attempt of its own: what was played again has the next number.
    assert {(f.job.task.id, f.job.sample, f.job.attempt + 1) for f in played.faults} <= {
        e.job.id for e in played.episodes
    }


def test_a_worker_that_dies_again_and_again_ends_the_run_in_one_line(workers: RayWorkers, parts: Parts) -> None:
    spawn = workers._cluster.spawn
    worker_contract.dies_again_and_again(ProcessWorkers(parts[0], 1, lambda: Doomed(spawn())), parts)


def test_what_the_user_can_fix_comes_back_as_one_line(workers: RayWorkers, parts: Parts) -> None:
    setup = replace(parts[0], base=replace(parts[0].base, source="/nowhere"))
    other = ProcessWorkers(setup, 1, workers._cluster.spawn)
    try:
        with pytest.raises(UserError, match="no model at '/nowhere'"):
            other.start()
    finally:
        other.close()


def listening(pid: int) -> list[str]:
    """Addresses on which a process listens, as the kernel writes them."""
    inodes = set()
    with suppress(OSError):  # it ended
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                inodes.add(os.readlink(file))
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in inodes:
                found.append(words[1].partition(":")[0])
    return found


def test_the_cluster_listens_on_loopback_only(workers: RayWorkers) -> None:
    loopback = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    found = [address for pid in ray_guard.marked(workers._cluster._folder) for address in listening(pid)]
    assert len(found) >= 4 and set(found) <= loopback
    with socket.create_server(("0.0.0.0", 0)):  # an open port is seen
        assert not set(listening(os.getpid())) <= loopback


def join(address: str, token: str | None) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    env |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token} if token else {"RAY_AUTH_MODE": "disabled"}
    env |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_gcs_server_request_timeout_seconds": "5"}
    command = [sys.executable, "-c", JOIN, address]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)


def test_nobody_joins_without_the_token(workers: RayWorkers, tmp_path: Path) -> None:
    import ray

    from runners.workers.ray_cluster import token

    address = ray.get_runtime_context().gcs_address
    assert "inside" not in join(address, None).stdout
    assert "inside" not in join(address, "0" * 64).stdout
    assert "inside" in join(address, token()).stdout
    assert not (Path.home() / ".ray" / "auth_token").exists() and "RAY_AUTH_TOKEN" not in os.environ


def test_a_cluster_with_too_few_processors_is_refused_at_once(workers: RayWorkers) -> None:
    cluster = workers._cluster
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "settings", RaySettings(cpus=0, gpus=1))
        with pytest.raises(UserError, match=r"--workers ray:2 with --ray.gpus 1 needs 2 GPUs, and the cluster has 0"):
            cluster.check_room()
