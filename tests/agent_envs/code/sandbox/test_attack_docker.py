"""The same attacks on containers. Needs an engine; fails without one where TURNWISE_NEEDS_DOCKER is set."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import pytest
from attack_list import ATTACKS
from attack_run import outcomes

from agent_envs.code.sandbox import Limits, SandboxFault, SandboxUnavailable, Status, docker
from agent_envs.code.sandbox.container import Container
from agent_envs.code.sandbox.docker import DockerSandbox

pytestmark = pytest.mark.docker


@cache
def _found() -> dict[str, Any]:
    found = outcomes("docker")
    if "unavailable" in found and not os.environ.get("TURNWISE_NEEDS_DOCKER"):
        pytest.skip(found["unavailable"])
    return found


@pytest.fixture
def sandbox() -> Any:
    _found()
    with DockerSandbox(limits=Limits(seconds=2, memory_mb=128, processes=16), workers=1) as sandbox:
        yield sandbox


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_it_is_held(attack: Any) -> None:
    assert _found()["outcomes"][attack.name] == ""


def test_nothing_is_left() -> None:
    assert _found()["left"] == [] and _found()["total"]


def _containers(sandbox: DockerSandbox) -> set[str]:
    found = sandbox._client.api.containers(all=True, filters={"label": f"turnwise={sandbox._label}"})
    return {container["Id"] for container in found}


def test_a_container_is_kept_after_a_clean_run_and_thrown_away_after_any_other(sandbox: DockerSandbox) -> None:
    def name() -> bytes:
        return sandbox.run(["cat", "/etc/hostname"]).stdout

    first = name()
    assert first and name() == first
    stray = "import subprocess; subprocess.Popen(['sleep', '20'])"
    for program, status in (
        ("while True: pass", Status.TIMEOUT),
        ("while True: print('x' * 1000)", Status.OUTPUT_LIMIT),
        (stray, Status.OK),
    ):
        before = name()
        assert sandbox.run(["python", "-c", program], limits=Limits(seconds=0.5, processes=16)).status is status
        assert name() != before


def test_nothing_of_a_run_is_there_in_the_next(sandbox: DockerSandbox) -> None:
    leave = "for f in '/tmp/x', '/dev/shm/x', 'x', '.hidden': open(f, 'w').write('left')\n"
    leave += "import os; os.makedirs('/tmp/a/b')"
    look = "import os; print([os.listdir(f) for f in ('/tmp', '/dev/shm', '.')])"
    assert sandbox.run(["python", "-c", leave]).ok
    assert sandbox.run(["python", "-c", look]).stdout == b"[[], [], []]\n"


def test_a_container_that_is_killed_is_a_fault_and_the_next_run_has_another(sandbox: DockerSandbox) -> None:
    sandbox.run(["true"])
    for container in list(sandbox._all):
        sandbox._client.api.kill(container.id)
    with pytest.raises(SandboxFault):
        for _ in range(3):
            sandbox.run(["true"])
    for _ in range(4):
        try:
            assert sandbox.run(["python", "-c", "print(1)"]).stdout == b"1\n"
            break
        except SandboxFault:
            continue
    else:
        pytest.fail("no container was made anew")


def test_all_containers_are_gone_when_it_is_closed(sandbox: DockerSandbox) -> None:
    sandbox.run(["true"])
    client, label = sandbox._client, sandbox._label
    assert _containers(sandbox)
    sandbox.close()
    assert not client.api.containers(all=True, filters={"label": f"turnwise={label}"})


def test_a_container_that_was_never_started_is_swept(sandbox: DockerSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    made = sandbox._client.api.create_container(docker.IMAGE, command=["true"], labels={"turnwise": "killed"})["Id"]
    other = sandbox._client.api.create_container(docker.IMAGE, command=["true"])["Id"]

    def there() -> set[str]:
        found = sandbox._client.api.containers(all=True, filters={"status": "created"})
        return {container["Id"] for container in found} & {made, other}

    try:
        docker.sweep(sandbox._client)
        assert there() == {made, other}  # a young one may be about to be started
        monkeypatch.setattr(docker, "_YOUNG", -60.0)
        docker.sweep(sandbox._client)
        assert there() == {other}
    finally:
        sandbox._client.api.remove_container(other)


_SMALL = """
import os
for folder in ("/work", "/tmp", "/dev/shm"):
    try:
        for at in range(40):
            open(f"{folder}/{at}", "wb", 0).write(bytes(1 << 20))
    except OSError:
        pass
shell = "echo 0 > /proc/self/oom_score_adj; x=$(head -c 4000000 /dev/zero | tr '\\\\0' a); sleep 8"
for _ in range(28):
    try:
        if os.fork() == 0:
            os.execv("/bin/bash", ["bash", "-c", shell])
    except OSError:
        break
open("/proc/self/oom_score_adj", "w").write("0")
os.execv("/bin/sleep", ["sleep", "8"])
"""


def test_a_container_that_its_program_has_killed_for_memory_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    _found()
    limits = Limits(seconds=5, memory_mb=130)
    with DockerSandbox(limits=limits, workers=1) as sandbox:
        assert Status.OOM in [sandbox.run(["python", "-c", _SMALL]).status for _ in range(3)]  # and no fault
        monkeypatch.setattr(Container, "spent_memory", lambda self, since: False)
        with pytest.raises(SandboxFault):  # the control: its first process does go
            for _ in range(6):
                sandbox.run(["python", "-c", _SMALL])


def test_memory_is_that_of_the_run(sandbox: DockerSandbox) -> None:
    eat = """
import os, time
for _ in range(3):
    if os.fork() == 0:
        x = b"x" * (40 << 20)
        time.sleep(20)
time.sleep(0.7)
for _ in range(3):
    print(os.waitpid(-1, os.WNOHANG)[1])
"""
    small = sandbox.run(["python", "-c", eat], limits=Limits(seconds=1.5, memory_mb=64, processes=16, disk_mb=8))
    assert b"9\n" in small.stdout  # the kernel killed one of them
    assert sandbox.run(["python", "-c", "x = b'x' * (90 << 20)"], limits=Limits(memory_mb=128, processes=16)).ok


def test_more_than_the_containers_were_made_with_is_refused(sandbox: DockerSandbox) -> None:
    with pytest.raises(ValueError, match="processes must be at most 16"):
        sandbox.run(["true"], limits=Limits(processes=17))


def test_an_image_that_is_not_there_is_one_line() -> None:
    _found()
    with pytest.raises(SandboxUnavailable, match=r"no image nowhere:1: make it with scripts/docker_image.sh$"):
        DockerSandbox(image="nowhere:1")
