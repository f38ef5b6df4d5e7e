"""A child process: messages with deadlines, what it prints, and that nothing is left of it."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from host_cases import ended, open_files, running

from agent_envs.isolation.child import Child, Oversize


@pytest.fixture
def child() -> Iterator[Child]:
    child = Child("child_main", output_mb=1)
    yield child
    child.kill()


def test_messages_of_any_size(child: Child) -> None:
    for data in (b"", b"x", os.urandom(3_000_000)):
        child.send_bytes(b"echo " + data, 20)
        assert child.recv_bytes(20) == data


def test_it_finds_what_the_parent_finds(child: Child) -> None:
    child.send_bytes(b"path", 20)
    before, *paths = child.recv_bytes(20).decode().splitlines()
    wanted = list(dict.fromkeys(os.path.abspath(path) for path in sys.path))
    assert paths[: len(wanted)] == wanted
    assert before == str(os.environ.get("PYTHONPATH"))


def test_a_message_that_comes_in_two_halves_is_waited_for_and_never_read_in_part(child: Child) -> None:
    child.send_bytes(b"half 0.8", 20)
    with pytest.raises(TimeoutError):
        child.recv_bytes(0.3)
    assert child.recv_bytes(20) == b"0123456789" + b"x" * 90


def test_a_message_that_is_too_long_is_not_read(child: Child) -> None:
    child.send_bytes(b"echo " + b"x" * 1000, 20)
    with pytest.raises(Oversize, match="1000 bytes, where 999"):
        child.recv_bytes(20, max_bytes=999)


def test_sending_has_a_deadline(child: Child) -> None:
    child.send_bytes(b"half 1000", 20)  # it does not read now
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        child.send_bytes(b"x" * 50_000_000, 0.3)
    assert time.monotonic() - started < 5


def test_only_the_end_of_what_it_prints_is_kept(child: Child) -> None:
    child.send_bytes(b"print " + b"x" * 500_000 + "\n最后 \udcff".encode("utf-8", "surrogatepass"), 20)
    assert child.recv_bytes(20) == b""
    deadline = time.monotonic() + 5
    while "最后" not in child.tail() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert "最后" in child.tail() and len(child.tail()) <= 4096


def test_one_that_prints_without_end_is_killed(child: Child) -> None:
    child.send_bytes(b"flood", 20)
    with pytest.raises(EOFError):
        child.recv_bytes(20)
    assert child.flooded and child.ending(5) == "signal SIGKILL"


def test_one_that_ends_is_noticed_though_its_own_child_holds_the_connection_and_that_one_dies_too(child: Child) -> None:
    child.send_bytes(b"leave", 20)
    left = int(child.recv_bytes(20))
    with pytest.raises(EOFError):
        child.recv_bytes(20)
    assert child.ending(5) == "exit status 7" and not child.alive
    assert ended([left], 5)


def test_killing_from_another_thread_ends_a_wait_and_leaves_nothing() -> None:
    Child("child_main").kill()  # whatever is opened once
    before, threads = open_files(), threading.active_count()
    for _ in range(3):
        child = Child("child_main")
        threading.Timer(0.1, child.kill).start()
        with pytest.raises(EOFError):
            child.recv_bytes(20)
        child.kill()
        assert not running(child.pid) and not os.path.exists(f"/proc/{child.pid}")
        with pytest.raises(EOFError):
            child.send_bytes(b"echo")
    assert ended_threads(threads) and open_files() == before


def ended_threads(count: int) -> bool:
    deadline = time.monotonic() + 5
    while threading.active_count() > count and time.monotonic() < deadline:
        time.sleep(0.01)
    return threading.active_count() <= count


def test_one_that_is_killed_from_outside_is_gone(child: Child) -> None:
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(EOFError):
        child.recv_bytes(20)
    assert child.ending(5) == "signal SIGKILL" and not child.alive


@pytest.mark.parametrize("module", ["child_main", "child_elsewhere"])
def test_it_dies_when_nobody_holds_the_lifeline(module: str) -> None:
    child = Child(module)
    child.send_bytes(b"echo x", 20)
    assert child.recv_bytes(20) == b"x"  # it is connected
    child.send_bytes(b"half 1000", 20)
    with pytest.raises(TimeoutError):  # it is well
        child.recv_bytes(1)
    assert child.alive
    os.close(child._lifeline)
    child._lifeline = os.open(os.devnull, os.O_RDONLY)
    try:
        with pytest.raises(EOFError):
            child.recv_bytes(10)
        assert child.ending(5) == ("signal SIGIO" if module == "child_main" else "signal SIGKILL")
    finally:
        child.kill()


def test_a_module_that_does_not_exist_is_seen_in_the_tail() -> None:
    child = Child("no_such_module")
    with pytest.raises(EOFError):
        child.recv_bytes(20)
    assert child.ending(5) == "exit status 1" and "no_such_module" in child.tail()
    child.kill()


@pytest.mark.parametrize("secrets", [True, False])
def test_secrets_are_passed_on_only_where_that_was_asked(secrets: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = {"OPENAI_API_KEY", "HF_TOKEN", "MY_PASSWORD_FILE", "aws_secret_access_key"}
    plain = {"MONKEYS", "TOKENIZERS_PARALLELISM"}
    for name in hidden | plain:
        monkeypatch.setenv(name, "x")
    child = Child("child_main", secrets=secrets)
    try:
        child.send_bytes(b"variables", 20)
        there = set(child.recv_bytes(20).decode().splitlines())
    finally:
        child.kill()
    assert plain <= there
    assert there & hidden == (hidden if secrets else set())
