"""Updates that begin more tasks than they learn from: what is dropped, what goes on, how old it gets, what counts."""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from rollout_cases import CHAT, speaker
from scripted_engine import FakeEngine

from agent_envs.core import Task
from agent_envs.identity.config import IdentityConfig
from agent_envs.identity.env import IdentityEnv
from agents.engine.base import Request
from agents.rollout.play import Played, rollout
from agents.rollout.quota import Quota
from agents.rollout.settings import FaultSettings
from agents.tree.episode import EpisodeId, Job
from runners.command_line.errors import UserError
from runners.settings.fitting import check_fit
from runners.settings.run_settings import read_settings
from runners.settings.train_settings import Train
from runners.training.budget import Budget
from runners.training.ledger import Ledger
from runners.training.partial import PartialRollouts
from runners.training.rollouts import Plans, Rollout, Rollouts
from runners.training.stream import TaskStream
from runners.workers.base import PlaySpec
from runners.workers.controller import Controller

CONFIG = IdentityConfig(max_turns=40)
TASKS = IdentityEnv(CONFIG).tasks("train")
GROUP, TASKS_OF_UPDATE, EXTRA = 2, 4, 3


def make() -> IdentityEnv:
    return IdentityEnv(CONFIG)


def script(request: Request, history: tuple[int, ...]) -> Sequence[int]:
    """Often says nothing that can be read, above all where the first word is red: such episodes have a long tail."""
    read = history + request.tokens
    slow = "word: red" in CHAT.decode(read).split("SAY(")[0]
    if Random(f"{request.seed} stalls").random() < (0.85 if slow else 0.3):
        return *CHAT.encode("hm"), CHAT.end_id
    return speaker()(replace(request, tokens=read), history)


class Scripted:
    """Workers that play at once, on the scripted engine."""

    def load(self, version: int, adapter: bytes, sha256: str) -> None: ...

    def submit(self, spec: PlaySpec, version: int, on_end: object = None) -> Future[Played]:
        future: Future[Played] = Future()
        engine = FakeEngine(script, CHAT.stop_ids, version=version)
        future.set_result(rollout(make, engine, CHAT, spec.jobs, quota=spec.quota))
        return future

    def close(self) -> None: ...


class Small:
    """A run without a model."""

    def __init__(self, folder: Path, state: Any = None, portion: int = 6, **train: Any) -> None:
        self.train = Train(episodes=TASKS_OF_UPDATE * GROUP, overprovision=EXTRA, **train)
        self.stream = TaskStream(TASKS, 0)
        self.budget = Budget(100)
        if state:
            self.stream.load(state["stream"])
            self.budget.load(state["budget"])
        self.ledger = Ledger(folder / "ledger.jsonl", state and state["ledger"])
        self.ledger.journal.cut()
        self.rollouts = Rollouts(
            Controller(Scripted(), portion, FaultSettings()),  # type: ignore[arg-type]
            self.stream,  # type: ignore[arg-type]
            self.jobs,
            self.ledger,
            self.train,
            Plans(GROUP),
        )
        if state:
            self.rollouts.go_on(json.loads(state["partial"]), self.job_again)

    def jobs(self, tasks: int) -> list[Job]:
        drawn: list[tuple[Task, int]] = [next(self.stream) for _ in range(tasks)]
        return [Job(task, visit * GROUP + g) for task, visit in drawn for g in range(GROUP)]

    def job_again(self, one: Any) -> Job:
        task = TASKS.find(one["task"])
        assert task is not None
        return Job(task, one["sample"], 0, one["attempt"])

    def update(self, number: int) -> Rollout:
        got = self.rollouts.next(number, dict)
        self.budget.add([*got.played.episodes, *got.cut], got.before)
        self.ledger.train(number, [e.job.id for e in got.played.episodes])
        return got

    def state(self) -> Any:
        return json.loads(
            json.dumps(
                {
                    "stream": self.rollouts.state(),
                    "ledger": self.ledger.state(self.rollouts.open()),
                    "budget": self.budget.state(),
                    "partial": json.dumps(self.rollouts.partial.plain()),
                }
            )
        )

    def events(self, event: str) -> list[EpisodeId]:
        self.ledger.journal.flush()
        lines = map(json.loads, self.ledger.journal.path.read_text().splitlines())
        return [tuple(one) for line in lines if line["event"] == event for one in line["episodes"]]


Make = Callable[..., Small]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Make]:
    runs: list[Small] = []

    def begin(name: str = "run", **options: Any) -> Small:
        (tmp_path / name).mkdir(exist_ok=True)
        runs.append(Small(tmp_path / name, **options))
        return runs[-1]

    yield begin
    for run in runs:
        run.ledger.journal.close()


def bits(got: Rollout) -> list[Any]:
    return [(e.job.id, e.texts, [(a.tokens, a.version) for a, _ in e.turns]) for e in got.played.episodes]


@pytest.mark.parametrize("staleness", [1, 2, 3])
@pytest.mark.parametrize("portion", [6, 64])
def test_what_is_cut_goes_on_and_is_never_too_old(small: Make, staleness: int, portion: int) -> None:
    run = small(portion=portion, staleness=staleness, partial_rollouts=True)
    lags, turns = set(), 0
    for update in range(1, 13):
        got = run.update(update)
        assert len(got.played.outcomes) == TASKS_OF_UPDATE * GROUP and not got.numbers["too_stale"]
        ages = [update - 1 - action.version for e in got.played.episodes for action, _ in e.turns]
        assert max(ages) == got.numbers["lag"] <= staleness
        lags.add(max(ages))
        turns += len(ages)
        assert got.numbers["cut"] == len(run.rollouts.partial.jobs) == EXTRA * GROUP
        run.state()
    assert lags >= {0, 1} and (staleness == 1 or max(lags) > 1), "some were cut more than once"
    trained, kept = run.events("trained"), run.rollouts.partial
    assert sorted(run.events("dispatched")) == sorted(trained + [job.id for job in kept.jobs]), "nothing is lost"
    assert len(set(trained)) == len(trained) and not run.events("dropped")
    assert run.budget.steps == turns + sum(len(e.turns) for e in kept.episodes), "every turn counts once"


def test_without_the_groups_that_must_end_some_are_too_old(small: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check finds them, and plays them again."""
    quota = PartialRollouts.quota
    monkeypatch.setattr(PartialRollouts, "quota", lambda *arguments, **kw: replace(quota(*arguments, **kw), must=0))
    run = small(staleness=1, partial_rollouts=True)
    found = [run.update(update).numbers for update in range(1, 13)]
    assert sum(numbers["too_stale"] for numbers in found) > 0 and all(numbers["lag"] <= 1 for numbers in found)


@pytest.mark.parametrize("at", [1, 2, 5])
def test_a_resumed_run_goes_on_with_the_same_bits(small: Make, at: int) -> None:
    options = {"staleness": 2, "partial_rollouts": True}
    run = small("whole", **options)
    states, played = [], []
    for update in range(1, 9):
        played.append(bits(run.update(update)))
        states.append(run.state())
    again = small("again", **options)
    for update in range(1, at + 1):
        again.update(update)
    state = again.state()
    again.update(at + 1)  # lost with the process
    resumed = small("again", state=state, **options)
    assert [bits(resumed.update(update)) for update in range(at + 1, 9)] == played[at:]
    assert resumed.state() == {
        **states[-1],
        "ledger": {**states[-1]["ledger"], "mark": resumed.state()["ledger"]["mark"]},
    }
    assert not resumed.events("dispatched again")


def test_a_resumed_run_that_forgets_them_loses_episodes(small: Make) -> None:
    run = small(staleness=1, partial_rollouts=True)
    run.update(1)
    again = small(state={**run.state(), "partial": "[]"}, staleness=1, partial_rollouts=True)
    again.update(2)
    assert set(again.state()["ledger"]["open"][0]) and len(again.events("dispatched")) != len(
        again.events("trained")
    ) + (EXTRA * GROUP)


@pytest.mark.parametrize("staleness", [0, 1])
def test_without_partial_rollouts_what_is_cut_is_dropped(small: Make, staleness: int) -> None:
    run = small(staleness=staleness, workers="1", updates=6)
    turns = 0
    for update in range(1, 7):
        got = run.update(update)
        assert len(got.played.outcomes) == TASKS_OF_UPDATE * GROUP and got.numbers["cut"] == EXTRA * GROUP
        turns += sum(len(e.turns) for e in [*got.played.episodes, *got.cut])
        run.state()
    trained, dropped = run.events("trained"), run.events("dropped")
    assert len(dropped) == 6 * EXTRA * GROUP and sorted(run.events("dispatched")) == sorted(trained + dropped)
    assert run.budget.steps == turns, "what is dropped was played"


def test_what_goes_on_is_dropped_when_the_run_ends(small: Make) -> None:
    run = small(staleness=1, partial_rollouts=True)
    run.update(1)
    run.rollouts.abandon(1)
    assert len(run.events("dropped")) == EXTRA * GROUP and run.state()["ledger"]["open"] == []


def test_the_oldest_go_first() -> None:
    partial = PartialRollouts(1)
    run = FakeEngine(script, CHAT.stop_ids, version=3)
    cuts = rollout(make, run, CHAT, [Job(TASKS[i]) for i in range(8)], quota=Quota(1, 2)).cut
    old = replace(cuts[4], episode=cuts[4].episode)
    assert old.episode is not None
    old.episode.turns[0][0].version = 1
    assert partial.keep([cuts[0], old, cuts[1]]) == []
    assert [job.id for job in partial.jobs] == [old.job.id, cuts[0].job.id, cuts[1].job.id]
    assert (partial.quota(5, oldest=0).must, partial.quota(5, oldest=1).must, partial.quota(5, oldest=3).must) == (
        0,
        1,
        3,
    )


def test_its_settings() -> None:
    partial = ["--overprovision", "4", "--staleness", "1", "--partial-rollouts"]
    found = read_settings(partial).train
    assert found.from_played and found.ahead == 0
    assert read_settings([*partial[:4], "--workers", "1"]).train.ahead == 1
    for argv, what in (
        (["--partial-rollouts"], "--partial-rollouts needs overprovision"),
        (["--partial-rollouts", "--overprovision", "4"], "and staleness"),
        (["--overprovision", "-1"], "--overprovision must"),
    ):
        with pytest.raises(UserError, match=what):
            read_settings(argv)
    for argv, what in (
        (["--algo", "arpo"], "--overprovision does not work with --algo arpo, whose episodes fork,"),
        (["--agent", "tot"], "--overprovision does not work with --agent tot"),
        (["--algo", "grpo", "--grpo.resample", "2"], "--overprovision does not work with --grpo.resample"),
    ):
        with pytest.raises(UserError, match=what):
            check_fit(read_settings([*argv, "--overprovision", "4"]))
    sizes = ["--algo", "grpo", "--grpo.group", "8", "--episodes", "64", *partial[2:], "--overprovision"]
    check_fit(read_settings([*sizes, "8"]))
    with pytest.raises(UserError, match="--overprovision 9 must be at most the 8 tasks of an update"):
        check_fit(read_settings([*sizes, "9"]))
