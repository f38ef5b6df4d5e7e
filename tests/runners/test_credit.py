"""Credit accuracy: what episodes tell by hand, and the program on runs of the identity environment."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from run_cases import training

from agent_envs.core import Task
from agents.tree import Kind, Node
from agents.tree.episode import Episode, Job
from algorithms import algorithm_class
from algorithms.vineppo import VinePPO
from runners.command_line.errors import UserError
from runners.crediting.program import measure, rows, scorers, show, write
from runners.crediting.quality import WHEN, by_turn, counts, credited_turns, quality
from runners.crediting.settings import Credit
from runners.training.credited import Credited

pytestmark = pytest.mark.usefixtures("own_cache")
SILENT = Console(file=io.StringIO(), width=200)


def episode(task: str, oracle: Sequence[float | None], rewards: Sequence[float], success: bool) -> Episode:
    """An episode whose states are worth ``oracle``."""
    states = [Node(Kind.STATE, (1,), oracle=value) for value in oracle]
    turns = [(Node(Kind.ACTION, (2,), reward=r), state) for r, state in zip(rewards, states[1:], strict=True)]
    states[-1].terminated, states[-1].success = True, success
    return Episode(Job(Task(task, "test", "")), states[0], turns, [("", "") for _ in turns])


GOOD = episode("good", [0.5, 0.5 + 1e-9, 0.7, 1.0], [0.0, 0.0, 1.0], True)
BAD = episode("bad", [0.5, 0.2, 0.2, 0.0], [0.0, 0.25, 0.0], False)
UNKNOWN = episode("unknown", [0.5, None], [1.0], True)
CREDITED = {
    GOOD.job.id: Credited((0.4, 0.5, 0.6, 0.0), (0.1, 0.2, 0.3)),
    BAD.job.id: Credited((0.4, 0.1, 0.1, 0.0), (-0.3, 0.1, 0.2)),
    UNKNOWN.job.id: Credited((9.0, 9.0), (9.0,)),
}


def test_turns_by_hand() -> None:
    turns = credited_turns([GOOD, BAD, UNKNOWN], CREDITED)
    assert turns.progress.tolist() == pytest.approx([0.0, 0.2, 0.3, -0.3, 0.0, -0.2]) and turns.progress[0] == 0
    assert turns.returns.tolist() == [1.0, 1.0, 1.0, 0.25, 0.25, 0.0]
    assert turns.oracle.tolist() == pytest.approx([0.5, 0.5, 0.7, 0.5, 0.2, 0.2])
    assert turns.value.tolist() == [0.4, 0.5, 0.6, 0.4, 0.1, 0.1]
    told = counts(turns)
    assert (told["episodes"], told["turns"], told["success"]) == (2, 6, 0.5)
    assert told["progress"] == told["setbacks"] == told["irrelevant"] == pytest.approx(1 / 3)


def test_figures_by_hand() -> None:
    found = {
        key: value and value.mean for key, value in quality(credited_turns([GOOD, BAD], CREDITED), draws=50).items()
    }
    assert found["auc"] == pytest.approx((1 + 0.5 + 1 + 1) / 4)  # 0.2 and 0.3 against -0.3 and 0.2
    assert found["auc_within"] is None  # neither episode has both
    assert found["irrelevant"] == pytest.approx((0.1 + 0.1) / 1.2)
    assert found["value_success"] == pytest.approx(8.5 / 9)
    assert found["value_solvable"] is None  # every state in which something was done could still be won
    assert found["ev_oracle"] == pytest.approx(1 - np.var([0.5, 0.5, 0.3, -0.5, -0.2, -0.2]) / 0.25)


def test_what_an_algorithm_has_not_is_not_told() -> None:
    neither = {name: Credited(None, None) for name in CREDITED}
    found = quality(credited_turns([GOOD, BAD], neither), draws=20)
    assert [key for key, value in found.items() if value is not None] == ["ev_oracle"]
    nothing = credited_turns([], {})
    assert set(quality(nothing).values()) == {None} and by_turn(nothing) == []


def test_intervals_draw_whole_tasks() -> None:
    many = [episode("one task", GOOD_ORACLE, [0, 0, 1], True) for _ in range(30)]
    for sample, one in enumerate(many):
        one.job = Job(one.job.task, sample)
    rng = np.random.default_rng(0)
    credited = {one.job.id: Credited(None, tuple(rng.normal(size=3))) for one in many}
    alone = quality(credited_turns(many, credited), draws=50)["rank"]
    assert alone is not None and alone.low == alone.mean == alone.high  # one task: nothing to draw
    for number, one in enumerate(many):
        one.job = Job(Task(str(number), "test", ""))
    credited = {one.job.id: Credited(None, tuple(rng.normal(size=3))) for one in many}
    spread = quality(credited_turns(many, credited), draws=50)["rank"]
    assert spread is not None and spread.low < spread.mean < spread.high


GOOD_ORACLE = (0.5, 0.2, 0.7, 1.0)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A finished run of each of three algorithms."""
    parent = tmp_path_factory.mktemp("runs")
    for algo in ("selfac", "grpo", "exact_critic"):
        with training(parent / algo, "--algo", algo, "--updates", "2", "--test-tasks", "0") as run:
            run.run()
    return {path.name: path for path in parent.iterdir() if path.is_dir()}


@pytest.mark.runs
def test_every_algorithm_is_asked_about_the_same_episodes(tmp_path: Path, folders: dict[str, Path]) -> None:
    runs = (folders["grpo"], folders["exact_critic"])
    credit = Credit(folders["selfac"], ("selfac", "gigpo", "vineppo"), runs, episodes=48, group=4, split="train")
    others = {"gigpo": algorithm_class("gigpo")(), "vineppo": VinePPO(continuations=8)}
    who = scorers(credit, others, SILENT)
    measured = measure(credit, who, SILENT)
    found = measured.figures
    for when in WHEN:
        assert found[when]["counts"]["episodes"] == 48 and found[when]["counts"]["tasks"] == 12
        figures = {name: one["figures"] for name, one in found[when]["scorers"].items()}
        assert set(figures) == {"grpo", "exact_critic", "selfac", "gigpo", "vineppo"}
        # The control: the oracle's own credit is right about every action, and GRPO cannot tell two of one chain apart.
        assert figures["exact_critic"]["auc"].mean == figures["exact_critic"]["rank"].mean == pytest.approx(1)
        assert figures["exact_critic"]["irrelevant"].mean == 0 < figures["grpo"]["irrelevant"].mean
        assert figures["grpo"]["ev"] is None and figures["gigpo"]["ev"] is None and figures["selfac"]["ev"] is not None
        # What the policy gets when it plays on tells right from wrong, and orders states as the oracle does.
        assert figures["vineppo"]["auc"].low > 0.6 and figures["vineppo"]["value_rank"].mean > 0
        assert len({one["ev_oracle"].mean for one in figures.values()}) == 1
    base = found["base"]["scorers"]["selfac"]["figures"]["value_solvable"]
    assert base.low == base.mean == base.high == 0.5, "an untrained critic says the same of every state"
    write(measured, credit, tmp_path / "out", SILENT)
    assert json.loads((tmp_path / "out" / "credit.json").read_text())["settings"]["episodes"] == 48
    lines = (tmp_path / "out" / "credit.jsonl").read_text().splitlines()
    assert len(lines) == 2 * 48 and set(json.loads(lines[0])["turns"][0]["advantages"]) == set(figures)
    assert (tmp_path / "out" / "credit.html").stat().st_size > 10_000
    table = list(csv.DictReader((tmp_path / "out" / "credit.csv").open()))
    assert len(table) == len(rows(found)) and {row["policy"] for row in table} == set(WHEN)
    show(found, SILENT)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"model": "grpo", "algos": ("selfac",)}, "selfac needs a critic"),
        ({"model": "selfac", "algos": ("ppo",)}, "ppo needs a critic"),
        ({"model": "grpo", "group": 1}, "grpo compares the episodes of a group"),
        ({"model": "grpo", "algos": ("grpo",), "runs": ("grpo",)}, "grpo is named twice"),
    ],
)
def test_who_cannot_take_part_is_told_in_one_line(
    folders: dict[str, Path], settings: dict[str, object], said: str
) -> None:
    paths = {"model": folders[str(settings["model"])], "runs": tuple(folders[n] for n in settings.get("runs", ()))}  # type: ignore[attr-defined]
    credit = Credit(**{**settings, **paths})  # type: ignore[arg-type]
    with pytest.raises(UserError, match=said) as error:
        scorers(credit, {name: algorithm_class(name)() for name in credit.algos}, SILENT)
    assert "\n" not in str(error.value)


def test_fewer_episodes_than_a_group_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one group of 8"):
        Credit(episodes=4)
