"""Dynamic sampling: which groups are replaced, what an update then learns from, and what is counted."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from run_cases import training

from agent_envs.core import Task
from agents.rollout.play import Played
from agents.tree.episode import Episode, Fault, FaultKind, Job, Stage
from agents.tree.tree import Kind, Node
from runners.command_line.errors import UserError
from runners.settings.fitting import check_fit
from runners.settings.run_settings import read_settings
from runners.training.resampling import equal_groups, resampled

GROUP = 2


def outcomes(task: str, *rewards: float | None) -> list[Episode | Fault]:
    """The group of a task; None is an episode whose environment broke."""
    made: list[Episode | Fault] = []
    for sample, reward in enumerate(rewards):
        job, root = Job(Task(task, "train", ""), sample), Node(Kind.STATE, (1,))
        if reward is None:
            made.append(Fault(job, FaultKind.RAISED, Stage.STEP, "no way"))
            continue
        action = root.add(Node(Kind.ACTION, (2,), reward=reward))
        made.append(Episode(job, root, [(action, action.add(Node(Kind.STATE, (3,), terminated=True)))]))
    return made


class Tasks:
    """Tasks whose groups have these rewards, one after the other."""

    def __init__(self, *groups: Sequence[float | None]) -> None:
        self.groups, self.drawn = list(groups), 0

    def draw(self, tasks: int) -> list[Job]:
        first, self.drawn = self.drawn, self.drawn + tasks
        return [Job(Task(f"t{i}", "train", ""), s) for i in range(first, self.drawn) for s in range(GROUP)]

    def play(self, jobs: Sequence[Job]) -> Played:
        names = dict.fromkeys(job.task.id for job in jobs)
        return Played([o for name in names for o in outcomes(name, *self.groups[int(name[1:])])], seconds_env=1.0)

    def run(self, tasks: int, rounds: int) -> tuple[Played, set[str]]:
        played, left_out = resampled(self.play(self.draw(tasks)), self.play, self.draw, GROUP, rounds)
        return played, {name for name, _, _ in left_out}


def test_groups_without_a_difference_are_found() -> None:
    groups = [outcomes("a", 1, 1), outcomes("b", 0, 1), outcomes("c", None, 1), outcomes("d", None, None)]
    found = equal_groups([o for group in groups for o in group], GROUP)
    assert [members[0].job.task.id for members in found] == ["a", "c", "d"]


def test_the_same_task_again_is_a_group_of_its_own() -> None:
    again = [Episode(Job(e.job.task, e.job.sample + GROUP), e.root, e.turns) for e in outcomes("a", 1, 1)]  # type: ignore[union-attr]
    assert len(equal_groups([*outcomes("a", 0, 1), *again], GROUP)) == 1


def test_rounding_is_no_difference() -> None:
    returns = 0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1
    assert returns[0] != returns[1] and len(equal_groups(outcomes("a", *returns), GROUP)) == 1
    assert equal_groups(outcomes("a", 0.6, 0.6 + 1e-6), GROUP) == []


def test_others_are_drawn_until_enough_differ() -> None:
    tasks = Tasks((0, 0), (0, 1), (1, 1), (0, 0), (1, 0), (0, 1), (0, 1))
    played, left_out = tasks.run(3, rounds=5)
    assert tasks.drawn == 6 and left_out == {"t0", "t2", "t3"}
    assert len(played.outcomes) == 12 and played.seconds_env == 3.0, "everything counts as played"


def test_the_rounds_are_bounded() -> None:
    tasks = Tasks((0, 0), (0, 1), (0, 0), (0, 0), (0, 1))
    played, left_out = tasks.run(2, rounds=2)
    assert tasks.drawn == 4 and left_out == {"t0", "t2", "t3"} and len(played.outcomes) == 8


def test_where_nothing_differs_everything_stays() -> None:
    assert Tasks(*[(0, 0)] * 4).run(2, rounds=1)[1] == set()


def test_nothing_is_drawn_where_all_differ() -> None:
    tasks = Tasks((0, 1), (1, 0))
    assert tasks.run(2, rounds=9)[1] == set() and tasks.drawn == 2


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--grpo.resample", "2", "--staleness", "1", "--workers", "1"), "leave --staleness out"),
        (("--grpo.resample", "2", "--grpo.baseline", "none", "--grpo.scale", "none"), "resample needs groups"),
        (("--grpo.resample", "-1"), "resample must not be negative"),
    ],
)
def test_what_does_not_go_together_is_refused(argv: tuple[str, ...], says: str) -> None:
    with pytest.raises(UserError, match=says):
        check_fit(read_settings(["--env", "identity", "--algo", "grpo", *argv]))


@pytest.mark.runs
@pytest.mark.usefixtures("own_cache")
def test_a_run_learns_from_what_differs_and_counts_the_rest(tmp_path: Path) -> None:
    few = ("--algo", "grpo", "--updates", "3", "--eval-every", "0", "--grpo.group", "2")
    with training(tmp_path / "run", *few, "--grpo.resample", "3") as run:
        run.run()
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["kind"] == "update"]
    assert sum(row["resampled_tasks"] for row in rows) > 0 and all(row["zero_groups"] == 0 for row in rows)
    events = [json.loads(line) for line in (tmp_path / "run" / "ledger.jsonl").read_text().splitlines()]
    dropped = [e for e in events if e.get("reason") == "its group has equal returns"]
    played = sum(len(e["episodes"]) for e in events if e["event"] == "dispatched")
    trained = sum(len(e["episodes"]) for e in events if e["event"] == "trained")
    assert dropped and played == trained + len(dropped)
    lines = (tmp_path / "run" / "episodes.jsonl").read_text().splitlines()
    assert len(lines) == played, "they are in the record"
    with training(tmp_path / "without", *few) as run:
        run.run()
    rows = [json.loads(line) for line in (tmp_path / "without" / "metrics.jsonl").read_text().splitlines()]
    assert any(row.get("zero_groups", 0) > 0 for row in rows), "the control"
    assert all("resampled_tasks" not in row for row in rows)
