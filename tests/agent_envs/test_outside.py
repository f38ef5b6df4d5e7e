"""Outside functions: whatever they do, the caller goes on, and what was not answered has a reason."""

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from host_cases import ended
from outside_cases import obey

from agent_envs.core import BackendUnavailable, SettingsError
from agent_envs.isolation.grader import Limits, Outside, shared

FEW = Limits(cpu_seconds=1, seconds=20, memory_mb=256, input_kb=64, output_kb=4)


@pytest.fixture(scope="module")
def outside() -> Iterator[Outside]:
    outside = Outside("outside_cases:obey", FEW)
    yield outside
    outside.close()


def test_values_come_as_json_keeps_them(outside: Outside) -> None:
    for value in (None, True, 1.5, "\ud800 动作 🙂", ["a", {"b": None}], 2**70):
        assert outside.call("echo", value).value == value


def test_threads_get_their_own_answers(outside: Outside) -> None:
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda i: outside.call("echo", i), range(100)))
    assert [reply.value for reply in replies] == list(range(100))


@pytest.mark.parametrize(
    ("order", "argument", "reason"),
    [
        ("power", None, "hung: no answer in 1 s of computing"),
        ("raise", "x", "raised: ValueError: first line second x"),
        ("recurse", None, "raised: RecursionError: "),
        ("fill", 2000, "memory: MemoryError"),
        ("quit", None, "exited: exit status 7"),
        ("die", None, "raised: refused: os.kill"),
        ("flood", 5000, "flooded: an answer of 5015 bytes, where 4096 are allowed"),
        ("nan", None, "garbage: it answered what JSON cannot say: ValueError: Out of range float values are not"),
    ],
)
def test_what_has_no_value_has_a_reason_and_the_next_call_is_served(
    outside: Outside, order: str, argument: object, reason: str
) -> None:
    reply = outside.call(order, argument)
    assert reply.value is None and reply.reason.startswith(reason), reply
    assert outside.call("echo", "still here").value == "still here"


def test_one_that_waits_instead_of_computing_is_ended_too() -> None:
    outside = Outside("outside_cases:obey", Limits(cpu_seconds=1, seconds=0.3))
    assert outside.call("sleep").reason == "hung: no answer in 0.3 s"
    outside.close()


def test_a_long_question_is_not_asked(outside: Outside) -> None:
    reply = outside.call("echo", "x" * 65536)
    assert reply.value is None and "65536 are allowed" in reply.reason


def test_no_call_leaves_anything_behind(outside: Outside) -> None:
    assert [outside.call("calls").value for _ in range(3)] == [1, 1, 1]
    assert outside.call("pid").value != outside.call("pid").value


def test_what_is_evaluated_there_reaches_nothing(outside: Outside, tmp_path: Path) -> None:
    there, new = tmp_path / "there", tmp_path / "new"
    there.write_text("hello world")
    with socket.create_server(("127.0.0.1", 0)) as server:
        attacks = {
            "write": str(new),
            "run": str(new),
            "system": str(new),
            "remove": str(there),
            "connect": server.getsockname()[1],
            "eval": f"__import__('pathlib').Path({str(new)!r}).touch()",
        }
        for order, argument in attacks.items():
            reply = outside.call(order, argument)
            assert reply.value is None and reply.reason.startswith("raised: refused: "), (order, reply)
    assert there.exists() and not new.exists()
    assert outside.call("read", str(there)).value == "hello"
    # They do work where nothing protects.
    for order in ("write", "run", "system", "eval"):
        obey(order, attacks[order])
        assert new.exists()
        new.unlink()
    obey("remove", str(there))
    assert not there.exists()


def test_a_process_that_somebody_kills_gives_no_verdict_on_the_text() -> None:
    outside = Outside("outside_cases:obey", Limits(cpu_seconds=1, seconds=20))
    outside.call("pid")
    assert outside._child is not None
    pid = outside._child.pid
    with ThreadPoolExecutor(1) as pool:
        os.kill(pid, signal.SIGSTOP)
        asked = pool.submit(outside.call, "echo", "mine")
        time.sleep(0.2)
        os.kill(pid, signal.SIGKILL)
        assert asked.result().value == "mine"
    assert outside.restarts == 1 and outside._child.pid != pid
    outside.close()


def test_closing_leaves_nothing_not_even_what_computes_and_can_be_done_twice() -> None:
    outside = Outside("outside_cases:obey", Limits(seconds=3.0))
    outside.close()
    outside.call("pid")
    assert outside._child is not None
    group = outside._child.pid
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(outside.call, "sleep")
        while len(members := of_group(group)) < 2 and not asked.done():
            time.sleep(0.01)
        assert asked.result().reason.startswith("hung")
    outside.close()
    outside.close()
    assert group in members and ended(members, 5)
    assert outside.call("echo", 1).value == 1
    outside.close()


def of_group(group: int) -> list[int]:
    """The processes of a group, as /proc tells."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[2]) == group:
                found.append(int(stat.parent.name))
    return found


def test_what_cannot_be_started_is_no_verdict() -> None:
    with pytest.raises(BackendUnavailable, match="no_such_module"):
        Outside("no_such_module:f").call("x")
    with pytest.raises(BackendUnavailable, match="no attribute 'nothing'"):
        Outside("outside_cases:nothing").call("x")
    with pytest.raises(SettingsError, match=r"turnwise\[nothing\]"):
        Outside("outside_missing:f").call("x")


def test_a_shared_one_is_the_same_for_all() -> None:
    assert shared("outside_cases:obey", FEW) is shared("outside_cases:obey", FEW)
    assert shared("outside_cases:obey", FEW) is not shared("outside_cases:obey")


@pytest.mark.parametrize("wrong", [{"cpu_seconds": 0}, {"seconds": 0.0}, {"memory_mb": 1}, {"input_kb": 0}])
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Limits(**wrong)  # type: ignore[arg-type]
