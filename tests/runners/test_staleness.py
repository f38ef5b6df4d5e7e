"""Rollouts that are played ahead: what is admitted, how old it may be, and what a stopped run does about it."""

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from agent_envs.identity.env import IdentityEnv
from agents.rollout.play import Played
from agents.rollout.settings import FaultSettings
from agents.tree.episode import Episode, Job
from agents.tree.tree import Kind, Node
from runners.command_line.errors import UserError
from runners.settings.run_settings import read_settings
from runners.settings.train_settings import Train
from runners.training.ledger import Ledger, LedgerError
from runners.training.rollouts import Plans, Rollout, Rollouts
from runners.training.stream import TaskStream
from runners.workers.base import PlaySpec
from runners.workers.controller import Controller

TASKS = IdentityEnv().tasks("train")
BATCH = 4


def episode(job: Job, version: int) -> Episode:
    root = Node(Kind.STATE, (1,))
    action = root.add(Node(Kind.ACTION, (2,), version=version))
    return Episode(job, root, [(action, action.add(Node(Kind.STATE, (3,), terminated=True)))])


class Instant:
    """Workers that play at once. ``wrong`` changes the version with which the jobs of a portion are played."""

    def __init__(self, wrong: Callable[[int], int] = lambda version: version) -> None:
        self.wrong, self.submitted = wrong, 0

    def load(self, version: int, adapter: bytes, sha256: str) -> None: ...

    def submit(self, spec: PlaySpec, version: int, on_end: object = None) -> Future[Played]:
        self.submitted += len(spec.jobs)
        future: Future[Played] = Future()
        future.set_result(Played([episode(job, self.wrong(version)) for job in spec.jobs]))
        return future

    def close(self) -> None: ...


class Small:
    """A run without a model."""

    def __init__(self, folder: Path, staleness: int, workers: Instant | None = None, state: Any = None) -> None:
        self.train = Train(staleness=staleness, workers="1", episodes=BATCH, updates=8)
        self.stream = TaskStream(TASKS, 0)
        self.workers = workers or Instant()
        if state:
            self.stream.load(state["stream"])
        self.ledger = Ledger(folder / "ledger.jsonl", state and state["ledger"])
        self.ledger.journal.cut()
        self.rollouts = Rollouts(
            Controller(self.workers, 16, FaultSettings()),  # type: ignore[arg-type]
            self.stream,
            lambda tasks: [Job(task, visit) for task, visit in (next(self.stream) for _ in range(tasks))],
            self.ledger,
            self.train,
            Plans(1),
        )

    def update(self, number: int) -> tuple[list[Episode], dict[str, float]]:
        rollout = self.rollouts.next(number, dict)
        self.ledger.train(number, [e.job.id for e in rollout.played.episodes])
        return rollout.played.episodes, dict(rollout.numbers)

    def state(self) -> Mapping[str, Any]:
        state = {"stream": self.rollouts.state(), "ledger": self.ledger.state(self.rollouts.open())}
        return json.loads(json.dumps(state))  # type: ignore[no-any-return]

    def events(self) -> list[tuple[str, int]]:
        self.ledger.journal.flush()
        lines = map(json.loads, self.ledger.journal.path.read_text().splitlines())
        return [(line["event"], len(line["episodes"])) for line in lines]


Make = Callable[..., Small]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Make]:
    runs: list[Small] = []

    def make(*arguments: Any, **options: Any) -> Small:
        runs.append(Small(tmp_path, *arguments, **options))
        return runs[-1]

    yield make
    for run in runs:
        run.ledger.journal.close()


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_what_is_admitted_and_how_old_it_gets(small: Make, staleness: int) -> None:
    run = small(staleness)
    ids = []
    for update in range(1, 9):
        episodes, ages = run.update(update)
        ids += [e.job.id for e in episodes]
        assert run.workers.submitted <= BATCH * (update - 1 + 1 + staleness)
        (version,) = {action.version for e in episodes for action, _ in e.turns}
        assert update - 1 - version == min(staleness, update - 1) == ages.get("lag", 0)
    # In the order of the stream, whatever was played when, and nothing beyond the last update.
    stream = TaskStream(TASKS, 0)
    assert ids == [(task.id, visit, 0) for task, visit in (next(stream) for _ in range(8 * BATCH))]
    assert run.workers.submitted == 8 * BATCH and not run.rollouts.ahead
    run.state()


def test_what_is_too_old_is_played_again_and_counted(small: Make) -> None:
    """A worker that kept an old policy, where nothing else notices."""
    run = small(1, Instant(lambda version: 0 if version == 3 else version))
    for update in (1, 2, 3, 4):
        assert run.update(update)[1]["too_stale"] == 0
    episodes, ages = run.update(5)
    assert ages == {"lag": 0, "too_stale": BATCH}
    assert {e.job.attempt for e in episodes} == {1} and {a.version for e in episodes for a, _ in e.turns} == {4}
    assert run.events()[-6:] == [("dropped", 1)] * 4 + [("dispatched", BATCH), ("trained", BATCH)]
    assert (run.ledger.dispatched, run.ledger.trained, run.ledger.dropped) == (7 * BATCH, 5 * BATCH, BATCH)
    run.state()


def test_without_the_check_it_would_be_trained_on(small: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rollouts, "fresh_enough", lambda self, update, played: Rollout(played))
    run = small(1, Instant(lambda version: 0))
    episodes = [run.update(update)[0] for update in range(1, 6)][-1]
    assert {5 - 1 - action.version for e in episodes for action, _ in e.turns} == {4}


def test_a_resumed_run_dispatches_again_what_was_played_ahead(small: Make) -> None:
    run = small(2)
    run.update(1)
    state = run.state()
    run.update(2)  # lost with the process
    again = small(2, state=state)
    ids = [e.job.id for update in (2, 3) for e in again.update(update)[0]]
    stream = TaskStream(TASKS, 0)
    assert ids == [(task.id, visit, 0) for task, visit in (next(stream) for _ in range(3 * BATCH))][BATCH:]
    assert again.events() == [
        *[("dispatched", BATCH)] * 3, ("trained", BATCH),
        *[("dispatched again", BATCH)] * 2, ("dispatched", BATCH), ("trained", BATCH), ("dispatched", BATCH),
        ("trained", BATCH),
    ]  # fmt: skip
    assert again.ledger.dispatched == 5 * BATCH, "an episode counts once"
    again.state()


def test_what_was_played_ahead_of_the_end_is_dropped(small: Make) -> None:
    run = small(2)
    run.update(1)
    with pytest.raises(LedgerError, match="8 episodes were neither"):
        run.ledger.state()
    run.rollouts.abandon(1)
    assert run.events()[-8:] == [("dropped", 1)] * 8
    assert run.state()["ledger"]["open"] == [] and run.ledger.dispatched == run.ledger.trained + run.ledger.dropped


def test_its_settings() -> None:
    assert read_settings(["--workers", "1", "--staleness", "1"]).train.ahead == 1
    with pytest.raises(UserError, match=r"--staleness needs rollout workers: set --workers 1 or more"):
        read_settings(["--staleness", "1"])
