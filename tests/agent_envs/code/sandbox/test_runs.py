"""Runs beside and after each other, and what happens when the sandbox itself is hit from outside."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from attack_run import descendants
from conftest import LIMITS, opened

from agent_envs.code.sandbox import Sandbox, SandboxFault, SandboxJob, Status, bundle, warm
from agent_envs.code.sandbox.choose import shared_sandbox
from agent_envs.code.sandbox.results import result_of
from agent_envs.code.sandbox.warm import WarmSandbox
from agent_envs.code.sandbox.zygote import stale, wire

pytestmark = pytest.mark.walls

LOCAL = ["namespace", "landlock", "unsafe-process"]


@pytest.fixture
def fresh() -> Iterator[WarmSandbox]:
    with opened("namespace", workers=1) as sandbox:
        assert isinstance(sandbox, WarmSandbox)
        yield sandbox


@pytest.fixture(scope="module")
def namespace() -> Iterator[Sandbox]:
    with opened("namespace") as sandbox:
        yield sandbox


_LEAVE = """
import json, os, sys
json.dumps = lambda *a: 'forged'
os.environ['LEFT'] = 'x'
sys.path.append('/left')
for folder in ('.', os.environ['TMPDIR'], '/dev/shm', '/tmp'):
    try:
        open(folder + '/turnwise-left', 'w').write('x')
    except OSError:
        pass
"""
_LOOK = """
import json, os, sys
places = ('.', os.environ['TMPDIR'], '/dev/shm', '/tmp')
found = [folder for folder in places if os.path.exists(folder + '/turnwise-left')]
print(found, json.dumps(1), os.environ.get('LEFT'), '/left' in sys.path)
"""


@pytest.mark.parametrize("wall", LOCAL)
def test_nothing_of_a_run_is_there_in_the_next(wall: str) -> None:
    with opened(wall, workers=1) as sandbox:
        try:
            assert sandbox.run(["python", "-c", _LEAVE]).ok
            found = sandbox.run(["python", "-c", _LOOK]).stdout
        finally:
            for folder in ("/tmp", "/dev/shm"):
                Path(folder, "turnwise-left").unlink(missing_ok=True)
    if wall == "unsafe-process":  # the control: what is left on the machine is found
        assert found == b"['/dev/shm', '/tmp'] 1 None False\n"
    else:
        assert found == b"[] 1 None False\n"


def test_the_memory_of_a_run_holds_nothing_of_another(namespace: Sandbox) -> None:
    # The zygote never reads a job: the words of one are nowhere in what the next one inherits.
    word = "a-word-" + os.urandom(8).hex()
    scan = """
import sys
first, last = sys.stdin.read().split()
word = (first + last).encode()
found = 0
for line in open('/proc/self/maps'):
    span, rights = line.split()[:2]
    if rights.startswith('rw'):
        low, high = (int(x, 16) for x in span.split('-'))
        with open('/proc/self/mem', 'rb', 0) as memory:
            memory.seek(low)
            try:
                found += memory.read(high - low).count(word)
            except OSError:
                pass
print(found)
"""
    namespace.run(["python", "-c", f"x = '{word}'"], {"a": word.encode()}, stdin=word.encode())
    halves = f"{word[:9]} {word[9:]}".encode()
    alone = int(namespace.run(["python", "-c", scan], stdin=halves).stdout)
    beside = int(namespace.run(["python", "-c", scan], {"a": word.encode()}, stdin=halves).stdout)
    assert alone <= 2 < beside + 2  # the word itself, put together by the scan
    assert beside >= alone


def test_bombs_beside_an_honest_run() -> None:
    limits = replace(LIMITS, seconds=1.5, memory_mb=64, disk_mb=8)
    forks = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n"
    eats = "x = []\nwhile True:\n    try:\n        x.append(bytes(1 << 20))\n    except MemoryError:\n        pass\n"
    honest = SandboxJob(["python", "-c", "print(sum(range(10**5)))"], limits=LIMITS)
    with opened("namespace", workers=3) as sandbox:
        # Sixteen interpreters fit in 128 MB but not always in 64: the forks would then end by memory, not by time.
        jobs = [
            SandboxJob(["python", "-c", forks], limits=replace(limits, memory_mb=128)),
            SandboxJob(["python", "-c", eats], limits=limits),
            honest,
        ]
        bomb, other, fine = sandbox.run_many(jobs)
        assert fine.stdout == b"4999950000\n" and fine.wall < 5
        assert bomb.status is Status.TIMEOUT and other.status in (Status.TIMEOUT, Status.OOM)
        assert other.memory is not None and other.memory <= 64 * 1.1 * 2**20
        assert sandbox.run(["python", "-c", "print(1)"]).ok


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_zygote_that_is_killed_is_a_fault_and_starts_again(fresh: WarmSandbox, number: int) -> None:
    assert fresh.run(["python", "-c", ""]).ok
    below, made = descendants(fresh.pid), fresh.made
    runs = threading.Timer(0.5, lambda: os.kill(fresh.pid, number))
    runs.start()
    with pytest.raises(SandboxFault):
        fresh.run(["python", "-c", "import time; time.sleep(8)"])
    runs.join()
    assert fresh.run(["python", "-c", "print(1)"]).stdout == b"1\n"
    deadline = time.monotonic() + 5
    while any(Path(f"/proc/{pid}").exists() for pid in below) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [pid for pid in below if Path(f"/proc/{pid}").exists()] == []
    assert [path for path in made if Path(path).exists()] == []


def test_a_zygote_that_is_stopped_is_a_fault_and_starts_again(
    fresh: WarmSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm, "_GRACE", 1.0)
    below, made = descendants(fresh.pid), fresh.made
    for pid in below:
        with contextlib.suppress(ProcessLookupError):  # the supervisor of the probe, at its end
            os.kill(pid, signal.SIGSTOP)
    with pytest.raises(SandboxFault, match="did not answer"):
        fresh.run(["python", "-c", "print(1)"], limits=replace(LIMITS, seconds=0.2))
    monkeypatch.setattr(warm, "_GRACE", 10.0)
    assert fresh.run(["python", "-c", "print(1)"]).stdout == b"1\n"
    assert not below & descendants(fresh.pid)
    assert [path for path in made if Path(path).exists()] == []


_TRAINER = """
import sys, threading, time
from agent_envs.code.sandbox.choose import open_sandbox
sandbox = open_sandbox(sys.argv[1])
print(sandbox.pid, *sandbox.made, flush=True)
threading.Timer(1.0, lambda: print('running', flush=True)).start()
sandbox.run(['python', '-c', 'import time; time.sleep(60)'])
"""


@pytest.mark.parametrize("wall", ["namespace", "landlock"])
def test_nothing_is_left_of_a_process_that_was_killed(wall: str) -> None:
    trainer = subprocess.Popen(
        [sys.executable, "-c", _TRAINER, wall], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert trainer.stdout is not None and trainer.stderr is not None
    pid, *made = trainer.stdout.readline().split() or [""]
    if not pid and not os.environ.get("CI"):
        pytest.skip(trainer.stderr.read())
    assert trainer.stdout.readline() == "running\n"
    below = descendants(int(pid))
    assert len(below) >= 5 and all(Path(path).exists() for path in made)
    trainer.kill()
    trainer.wait()
    deadline = time.monotonic() + 8
    there = [*(f"/proc/{each}" for each in below), *made]
    while any(Path(path).exists() for path in there) and time.monotonic() < deadline:
        time.sleep(0.05)
    trainer.communicate()
    assert [path for path in there if Path(path).exists()] == []


def test_a_process_shares_one_and_one_that_is_closed_says_so() -> None:
    opened("unsafe-process").close()
    shared = shared_sandbox("unsafe-process")
    assert shared is shared_sandbox("unsafe-process")
    assert shared.run(["python", "-c", "print(1)"]).ok
    shared.close()
    shared.close()
    with pytest.raises(RuntimeError, match="closed"):
        shared.run(["true"])


def test_the_folders_of_runs_lie_where_temporary_files_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # as with TMPDIR set
    with opened("unsafe-process", workers=1) as sandbox:
        assert isinstance(sandbox, WarmSandbox)
        (folder,) = sandbox.made
        assert Path(folder).parent == tmp_path and sandbox.run(["true"]).ok
    assert list(tmp_path.iterdir()) == []


def test_no_descriptor_of_the_host_is_there_whatever_its_number() -> None:
    # The sockets and pipes of the sandbox keep the numbers they have in this process, which may be large.
    low = [os.open(os.devnull, os.O_RDONLY) for _ in range(700)]
    try:
        with opened("namespace", workers=1) as sandbox:
            listed = sandbox.run(["python", "-c", "import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))"])
    finally:
        for fd in low:
            os.close(fd)
    assert listed.stdout == b"[0, 1, 2, 3]\n"  # the last is that of the list itself


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="takes two processors")
@pytest.mark.parametrize("wall", LOCAL)
def test_a_worker_keeps_to_its_processor_when_there_is_one_for_each_and_programs_to_none(wall: str) -> None:
    every = os.sched_getaffinity(0)
    two = set(sorted(every)[:2])
    ask = SandboxJob(("python", "-c", "import os; print(sorted(os.sched_getaffinity(0)))"))
    os.sched_setaffinity(0, two)
    try:
        for workers in (1, 2, 3):
            with opened(wall, workers=workers) as sandbox:
                assert isinstance(sandbox, WarmSandbox)
                answers = sandbox.run_many([ask] * 6)
                kept = []
                for pid in descendants(sandbox.pid):
                    with contextlib.suppress(ProcessLookupError):  # a supervisor that was still ending
                        kept.append(os.sched_getaffinity(pid))
            assert {answer.stdout.decode().strip() for answer in answers} == {str(sorted(two))}
            alone = {processor for processors in kept if len(processors) == 1 for processor in processors}
            assert alone == (two if workers == 2 else set())
    finally:
        os.sched_setaffinity(0, every)


def test_an_answer_that_is_too_large_ends_its_own_run_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened("namespace", workers=2) as sandbox:
        pid = sandbox.pid  # type: ignore[attr-defined]
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(sandbox.run, ["python", "-c", "import time; time.sleep(1.5); print(1)"])
            time.sleep(0.5)
            monkeypatch.setattr(warm, "most_bytes", lambda job: 100)
            with pytest.raises(SandboxFault, match="did not answer as it must"):
                sandbox.run(["python", "-c", "print(2)"])
            monkeypatch.undo()
            assert other.result().stdout == b"1\n"
        assert sandbox.pid == pid  # type: ignore[attr-defined]
        assert sandbox.run(["python", "-c", "print(3)"]).stdout == b"3\n"


_FLOOD = """
import os
at = 0
while True:
    MAKE
    at += 1
"""


@pytest.mark.parametrize(
    "make", ["os.mkdir(str(at))", "os.mkdir(str(at), 0o300); os.mkdir(f'{at}/a')", "open(str(at), 'w')"]
)
def test_files_without_end_end_their_own_run_only_where_nothing_refuses_them(make: str) -> None:
    with opened("landlock", workers=2) as sandbox:
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(sandbox.run, ["python", "-c", "import time; time.sleep(1.5); print(1)"])
            flood = sandbox.run(
                ["python", "-c", _FLOOD.replace("MAKE", make)], limits=replace(LIMITS, seconds=20, inodes=200)
            )
            assert other.result().stdout == b"1\n"
        assert (flood.status, flood.signal) == (Status.ERROR, 9) and flood.wall < 15
        assert sandbox.run(["python", "-c", "print(2)"]).stdout == b"2\n"


_KILLED = """
import time
from agent_envs.code.sandbox.choose import open_sandbox
walls = [open_sandbox("namespace"), open_sandbox("landlock")]
for wall in walls:
    print(wall.pid, *wall.made, flush=True)
time.sleep(60)
"""


def test_what_a_killed_sandbox_left_is_swept_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    opened("namespace").close()
    opened("landlock").close()
    user = subprocess.Popen([sys.executable, "-c", _KILLED], stdout=subprocess.PIPE, text=True)
    assert user.stdout is not None
    lines = [user.stdout.readline().split() for _ in range(2)]
    made = [Path(path) for _, *paths in lines for path in paths]
    assert made and all(path.exists() for path in made)
    user.send_signal(signal.SIGSTOP)
    for pid, *_ in lines:
        os.kill(int(pid), signal.SIGKILL)
    user.kill()
    user.wait()
    time.sleep(0.5)
    assert any(path.exists() for path in made)  # the control: nobody cleaned up
    opened("namespace").close()
    assert any(path.exists() for path in made)  # young folders may be about to be held
    sources = {name: text.replace("_YOUNG = 60.0", "_YOUNG = 0.0") for name, text in bundle._sources().items()}
    monkeypatch.setattr(bundle, "_sources", lambda: sources)
    with opened("landlock") as used:  # which is held, however old
        for wall in ("namespace", "landlock"):
            opened(wall).close()
        assert not any(path.exists() for path in made)
        assert all(Path(path).exists() for path in used.made)  # type: ignore[attr-defined]


def test_what_another_sandbox_or_a_probe_left_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever sandbox starts; what is held, or is another's, stays."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    sources = {name: text.replace("_YOUNG = 60.0", "_YOUNG = 0.0") for name, text in bundle._sources().items()}
    monkeypatch.setattr(bundle, "_sources", lambda: sources)
    (tmp_path / f"{stale.FOLDER}left").mkdir()
    (tmp_path / f"{stale.FOLDER}left" / "secret").write_text("x")
    (tmp_path / f"{stale.FOLDER}used").mkdir()
    (tmp_path / "another").mkdir()
    (tmp_path / f"{stale.FOLDER}way").symlink_to(tmp_path / "another")
    held = os.open(tmp_path / f"{stale.FOLDER}used", os.O_RDONLY)
    stale.hold(held)
    try:
        opened("namespace").close()
        assert {path.name for path in tmp_path.iterdir()} == {f"{stale.FOLDER}used", f"{stale.FOLDER}way", "another"}
    finally:
        os.close(held)


def test_memory_that_not_even_the_supervisor_survives_is_the_program_s_own_doing() -> None:
    result = result_of(wire.pack({"oom": True}), SandboxJob(["python"]))
    assert result.status is Status.OOM and result.exit_code is None and result.stray
    with pytest.raises(SandboxFault):
        result_of(wire.pack({"fault": "no memory"}), SandboxJob(["python"]))


def test_a_supervisor_that_is_slow_to_end_counts_against_no_other_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds the files that it has just sent; one that is slower than the host waits for, too."""
    last = "    wire.write(sink, wire.pack(result, [*out, *found.changed.values()]))\n"
    slow = last + "    time.sleep(0.2 if found.changed else 0.0)\n"
    sources = {name: text.replace(last, slow) for name, text in bundle._sources().items()}
    assert sources != bundle._sources()
    monkeypatch.setattr(bundle, "_sources", lambda: sources)
    with opened("namespace", replace(LIMITS, collected_kb=16 << 10), workers=1) as sandbox:
        alone = sandbox.run(["python", "-c", "pass"]).memory
        wrote = sandbox.run(["python", "-c", "open('f', 'wb').write(b'x' * (12 << 20))"])
        after = sandbox.run(["python", "-c", "pass"]).memory
    assert len(wrote.files["f"]) == 12 << 20 and alone is not None and after is not None
    assert after < alone + (6 << 20)
