"""The records of a run: no line lost or written twice, every episode accounted once, every task once a pass."""

import json
import os
import signal
from pathlib import Path

import pytest

from agent_envs.identity.env import IdentityEnv
from runners.command_line.errors import UserError
from runners.run_folder.journal import Journal
from runners.training.interrupts import Interrupts, Stopped
from runners.training.ledger import Ledger, LedgerError
from runners.training.stream import TaskStream

TASKS = IdentityEnv().tasks("train")


# -- journal ---------------------------------------------------------------------------------------------------------


def lines(path: Path) -> list[object]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_what_was_written_after_the_mark_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    first = Journal(path)
    first.write({"n": 1, "text": "动作 🙂", "odd": float("nan"), "deep": [float("inf")]})
    mark = first.mark()
    first.write({"n": 2})
    first.flush()
    path.open("ab").write(b'{"half')  # what a killed process leaves
    again = Journal(path, json.loads(json.dumps(mark)))
    again.cut()
    again.write({"n": 3})
    after = again.mark()
    assert lines(path) == [{"n": 1, "text": "动作 🙂", "odd": None, "deep": [None]}, {"n": 3}]
    assert path.stat().st_size == after["bytes"]
    Journal(path, after).cut()


def test_half_a_surrogate_pair_can_be_recorded(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "record.jsonl")
    journal.write({"text": "\ud83d alone"})
    journal.flush()
    assert lines(journal.path) == [{"text": "\ud83d alone"}]


@pytest.mark.parametrize("harm", ["changed", "cut short", "missing"])
def test_a_changed_record_is_refused_and_left_as_it_is(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "record.jsonl"
    journal = Journal(path)
    journal.write({"n": 1})
    mark = journal.mark()
    before = path.read_bytes()
    after = {"changed": before.replace(b"1", b"7"), "cut short": before[:-2], "missing": None}[harm]
    path.unlink() if after is None else path.write_bytes(after)
    with pytest.raises(UserError, match=r"record\.jsonl (is missing|was changed).*--init-from"):
        Journal(path, mark)
    assert (path.read_bytes() if path.exists() else None) == after


# -- ledger ----------------------------------------------------------------------------------------------------------


def ids(*samples: int, attempt: int = 0) -> list[tuple[str, int, int]]:
    return [("task", sample, attempt) for sample in samples]


def test_every_episode_is_accounted_once(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.dispatch(1, ids(0, 1, 2))
    with pytest.raises(LedgerError, match="neither trained nor dropped"):
        ledger.state()
    ledger.drop(1, ids(1)[0], "hung in step")
    ledger.dispatch(1, ids(1, attempt=1))
    ledger.train(1, [*ids(0, 2), *ids(1, attempt=1)])
    state = json.loads(json.dumps(ledger.state()))
    assert (ledger.dispatched, ledger.trained, ledger.dropped) == (4, 3, 1)
    again = Ledger(tmp_path / "ledger.jsonl", state)
    again.journal.cut()
    assert (again.dispatched, again.trained, again.dropped) == (4, 3, 1)
    events = [(line["event"], len(line["episodes"])) for line in lines(tmp_path / "ledger.jsonl")]  # type: ignore[index, call-overload]
    assert events == [("dispatched", 3), ("dropped", 1), ("dispatched", 1), ("trained", 3)]


def test_an_episode_counted_twice_is_an_error(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.dispatch(1, ids(0, 1))
    for wrong in (lambda: ledger.dispatch(1, ids(1)), lambda: ledger.dispatch(1, ids(5, 5))):
        with pytest.raises(LedgerError, match="twice"):
            wrong()
    ledger.train(1, ids(0))
    twice, strange, doubled = ids(0), ids(7), ids(1, 1)
    for wrong in (
        lambda: ledger.train(1, twice),
        lambda: ledger.drop(1, strange[0], "?"),
        lambda: ledger.train(1, doubled),
    ):
        with pytest.raises(LedgerError, match="not open"):
            wrong()


# -- stream ----------------------------------------------------------------------------------------------------------


def test_each_task_comes_once_a_pass_in_another_order() -> None:
    stream = TaskStream(TASKS, 0)
    passes = [[next(stream) for _ in range(len(TASKS))] for _ in range(3)]
    orders = [[task.id for task, _ in one] for one in passes]
    assert all(sorted(order) == sorted(task.id for task in TASKS) for order in orders)
    assert orders[0] != orders[1] != orders[2]
    assert [{visit for _, visit in one} for one in passes] == [{0}, {1}, {2}]
    assert TaskStream(TASKS, 1).order.tolist() != TaskStream(TASKS, 0).order.tolist()


@pytest.mark.parametrize("before", [0, 7, 129, 130, 131, 300])
def test_a_stream_goes_on_from_its_state(before: int) -> None:
    whole = TaskStream(TASKS, 5)
    for _ in range(before):
        next(whole)
    state = json.loads(json.dumps(whole.state()))
    again = TaskStream(TASKS, 5)
    again.load(state)
    rest = [next(whole) for _ in range(300)]
    assert [next(again) for _ in range(300)] == rest
    for missing in ("rng", "at"):  # neither can be left out
        poor = TaskStream(TASKS, 6 if missing == "rng" else 5)
        poor.load(state | ({"rng": poor.before} if missing == "rng" else {"at": (state["at"] + 1) % 130}))
        assert [next(poor) for _ in range(300)] != rest


# -- interrupts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_waits_for_the_end_of_a_shield(number: int) -> None:
    reached = []
    handlers = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)]
    with pytest.raises(Stopped) as stop, Interrupts() as interrupts:
        with interrupts.shielded():
            with interrupts.shielded():
                os.kill(os.getpid(), number)
                reached.append("inner")
            reached.append("outer")
        reached.append("never")
    assert reached == ["inner", "outer"]
    assert stop.value.status == 128 + number and not isinstance(stop.value, Exception)
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)] == handlers


def test_an_error_that_leaves_a_shield_is_not_hidden_by_a_signal() -> None:
    """What it left half done would be saved as if it were whole."""
    with pytest.raises(OSError, match="disk full"), Interrupts() as interrupts, interrupts.shielded():
        os.kill(os.getpid(), signal.SIGTERM)
        raise OSError("disk full")


def test_outside_a_shield_it_comes_at_once() -> None:
    with pytest.raises(Stopped), Interrupts():
        os.kill(os.getpid(), signal.SIGTERM)
        pytest.fail("not stopped")
