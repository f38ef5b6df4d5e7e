"""What becomes of rollout workers is recorded: by scripted processes, in the file of a run, and on its page."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from agents.engine import SamplingSettings
from runners.viewer.read import _workers
from runners.workers.base import BASE_MODEL, PlaySpec, WorkerLost
from runners.workers.process import ProcessWorkers
from runners.workers.states import WorkerEvent, WorkerLog, WorkerState

DONE, SILENT, GONE = pickle.dumps(("done", "an engine")), TimeoutError(), EOFError()


class Scripted:
    """A process that answers what it is told to answer."""

    def __init__(self, answers: list[bytes | Exception]) -> None:
        self.answers = answers
        self.waited: list[float | None] = []

    def send_bytes(self, data: bytes, timeout: float | None = None) -> None: ...

    def recv_bytes(self, timeout: float | None = None) -> bytes:
        self.waited.append(timeout)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def ending(self, grace: float = 0.0) -> str:
        return "signal SIGKILL"

    def tail(self) -> str:
        return "last words\n"

    def kill(self) -> None: ...


class Setup:
    """As much of a worker's settings as the controller's side reads."""

    class play:  # noqa: N801
        class faults:  # noqa: N801
            stall_seconds = 100.0


def workers(*processes: list[bytes | Exception]) -> tuple[ProcessWorkers, list[WorkerEvent], list[Scripted]]:
    events: list[WorkerEvent] = []
    made = [Scripted(answers) for answers in processes]
    waiting = iter(made)
    setup: Any = Setup
    return ProcessWorkers(setup, 1, lambda: next(waiting), events.append), events, made


def states(events: list[WorkerEvent]) -> list[str]:
    return [str(event.state) for event in events]


def test_a_worker_that_plays() -> None:
    playing, events, _ = workers([DONE, DONE, DONE, DONE, DONE])
    playing.start()
    assert states(events) == ["starting", "stale"]
    for version in range(2):
        playing.load(version, BASE_MODEL, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
        playing.submit(PlaySpec((), SamplingSettings()), version).result()
    playing.close()
    assert states(events) == ["starting", "stale", "healthy", "retired"]
    assert {event.worker for event in events} == {0}


def test_a_silent_worker_is_suspected_before_it_is_given_up() -> None:
    playing, events, made = workers([DONE, SILENT, DONE], [DONE, DONE])
    playing.start()
    playing.submit(PlaySpec((), SamplingSettings()), 0).result()
    assert states(events) == ["starting", "stale", "suspect", "stale"]
    assert events[2].why == "it said nothing for 40 s"
    assert made[0].waited[1:] == [40, 120]  # together its patience: that of a standstill, and 60 s
    playing.close()


def test_a_lost_worker_is_dead_and_starts_again() -> None:
    playing, events, _ = workers([DONE, DONE, GONE], [DONE, DONE, DONE])
    playing.start()
    playing.load(3, BASE_MODEL, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    playing.submit(PlaySpec((), SamplingSettings()), 3).result()
    assert states(events) == ["starting", "stale", "healthy", "dead", "starting", "stale", "healthy"]
    assert events[3].why == "signal SIGKILL; last it said: last words"
    playing.close()


def test_a_start_that_fails_is_no_loss_of_the_episodes() -> None:
    playing, events, _ = workers([DONE, GONE], [GONE], [GONE], [DONE, GONE], [GONE], [DONE, DONE])
    playing.start()
    playing.submit(PlaySpec((), SamplingSettings()), 0).result()
    assert states(events).count("dead") == 5
    playing.close()


def test_three_starts_in_a_row_that_fail_end_the_run() -> None:
    playing, _, _ = workers([DONE, GONE], [GONE], [GONE], [GONE])
    playing.start()
    with pytest.raises(WorkerLost, match="could not be started 3 times in a row: signal SIGKILL"):
        playing.submit(PlaySpec((), SamplingSettings()), 0).result()
    playing.close()


def test_one_that_stays_silent_is_dead() -> None:
    playing, events, _ = workers(*[[DONE, SILENT, SILENT] for _ in range(3)])
    playing.start()
    with pytest.raises(WorkerLost, match="it said nothing for 160 s"):
        playing.submit(PlaySpec((), SamplingSettings()), 0).result()
    assert states(events) == ["starting", "stale", "suspect", "dead"] * 3
    playing.close()
    assert states(events)[-1] == "dead", "what is dead is not retired"


def test_the_record_and_what_the_page_says_of_it(tmp_path: Path) -> None:
    file, update = tmp_path / "workers.jsonl", [0]
    assert _workers(file) == {}
    log = WorkerLog(file, lambda: update[0])
    assert not file.exists()
    log(WorkerEvent(0, WorkerState.STARTING))
    log(WorkerEvent(1, WorkerState.STARTING))
    update[0] = 3
    log(WorkerEvent(1, WorkerState.DEAD, "exit status 1; last it said: \u202e<b>\n"))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(e["worker"], e["state"], e["update"]) for e in lines] == [
        (0, "starting", 0), (1, "starting", 0), (1, "dead", 3),
    ]  # fmt: skip
    WorkerLog(file, lambda: 4)(WorkerEvent(1, WorkerState.HEALTHY))
    assert _workers(file) == {
        "worker 0": "starting at update 0",
        "worker 1": "starting at update 0, dead (exit status 1; last it said: \u202e<b>\n) at update 3, "
        "healthy at update 4",
    }
    for _ in range(20):
        log(WorkerEvent(0, WorkerState.HEALTHY))
    assert _workers(file)["worker 0"].startswith("… healthy")
    file.write_text("[]\n")
    assert _workers(file) == {"record": "it is damaged"}
