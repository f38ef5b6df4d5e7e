"""A critic's calibration on states whose truth is known: a perfect one, a blind one, one that only counts turns."""

from pathlib import Path

import numpy as np
import pytest

from agent_envs.core import Task
from agents.tree import Kind, Node
from agents.tree.episode import Episode, Job
from runners.evaluation import calibration_report
from runners.evaluation.calibration import calibration, predictor, reliability
from runners.statistics.turns import Passed, Turns, turns_of


def states(n: int = 400, skill: float = 1.0, leak: bool = False, seed: int = 0) -> Turns:
    """Episodes of 2 to 6 turns of n tasks with two levels. The chance of success p is drawn for each; V = p or noise.

    With ``leak`` a longer episode fails more often, and V is a function of the turn and the level alone.
    """
    rng = np.random.default_rng(seed)
    columns: list[list[float]] = []
    for e in range(n):
        turns, level = int(rng.integers(2, 7)), int(rng.integers(2))
        chance = rng.random() if not leak else float(np.clip(1.1 - 0.2 * turns + 0.2 * level, 0, 1))
        won = float(rng.random() < chance)
        for k in range(turns):
            value = chance if skill else rng.random()
            if leak:
                value = 1 - 0.15 * k + 0.2 * level
            oracle = 1.0 if won or k < turns // 2 else 0.0
            columns.append([e, e // 2, k, turns, level, value, won, oracle])
    table = np.asarray(columns).T
    return turns_by(table)


def turns_by(table: np.ndarray) -> Turns:
    """The first eight columns; rewards, progress and advantages are not known."""
    return Turns(*(table[i].astype(np.int_) for i in range(5)), *table[5:], *np.full((4, table.shape[1]), np.nan))


def test_a_critic_that_knows_the_chance_is_calibrated() -> None:
    found = calibration(states())
    figures = found["figures"]
    assert figures["auc"].mean > 0.75 and figures["auc_half"].low > 0.7
    assert figures["auc_half_gain"].low > 0.1 and figures["auc_half_predictor"].high < 0.65
    assert figures["auc_middle_gain"].low > 0.1 and figures["auc_middle"].low > 0.7
    assert figures["brier"].high < figures["brier_predictor"].low
    many = states(2000)
    rows = reliability(many.value, many.success)
    assert len(rows) == 10 and all(abs(r["value"] - r["success"]) < 0.15 for r in rows)
    assert 0 < len(found["reliability"]) <= 10
    assert figures["auc_oracle"].mean > 0.6 and figures["auc_solvable"].mean > 0.6
    assert found["counts"]["tasks"] == 100 and 190 <= found["counts"]["episodes"] <= 210


def test_a_blind_critic_is_chance() -> None:
    """The control of the test above."""
    figures = calibration(states(skill=0))["figures"]
    assert figures["auc"].low < 0.5 < figures["auc"].high
    assert figures["auc_half_gain"].low < 0 and figures["brier"].low > figures["brier_predictor"].high


def test_what_turn_and_level_tell_is_no_merit() -> None:
    figures = calibration(states(800, leak=True))["figures"]
    assert figures["auc_half"].low > 0.6, "it ranks well …"
    assert figures["auc_half_gain"].mean < 0.02, "… and no better than someone who saw no state"


def test_half_of_its_own_turns_gives_an_episode_away_and_the_middle_does_not() -> None:
    """Episodes of 4 turns succeed and those of 8 fail, at random as far as anybody can see before the end."""
    rng = np.random.default_rng(0)
    rows = [
        (e, e, k, 4 if won else 8, 0, rng.random(), float(won), 1.0)
        for e in range(400)
        for won in [rng.random() < 0.5]
        for k in range(4 if won else 8)
    ]
    table = np.asarray(rows, dtype=np.float64).T
    figures = calibration(turns_by(table))["figures"]
    assert figures["auc_half_predictor"].mean > 0.99
    assert figures["auc_middle_predictor"].mean == 0.5


def test_the_predictor_by_hand() -> None:
    learn = states(300)
    tell = learn.where(learn.turn == 1)
    mine = learn.where((learn.turn == 1) & (learn.group == 0))
    of_turn = learn.where(learn.turn == 1)
    whole = learn.success.mean()
    turn = (of_turn.success.sum() + 5 * whole) / (len(of_turn.turn) + 5)
    expected = (mine.success.sum() + 5 * turn) / (len(mine.turn) + 5)
    assert predictor(learn, tell, learn.success)[tell.group == 0] == pytest.approx(expected)
    unseen = Turns(**{**vars(tell), "turn": tell.turn + 50})
    assert predictor(learn, unseen, learn.success) == pytest.approx(whole)


def test_by_turn_and_reliability() -> None:
    found = calibration(states(800))
    assert [row["turn"] for row in found["by_turn"]][:3] == [0, 1, 2]
    assert all(row["auc"] > 0.7 and row["states"] >= 30 for row in found["by_turn"][:3])
    assert reliability(np.array([0.0, 0.05, 1.0]), np.array([0.0, 1.0, 1.0])) == [
        {"states": 2.0, "value": 0.025, "success": 0.5},
        {"states": 1.0, "value": 1.0, "success": 1.0},
    ]
    assert calibration(states().where(np.zeros(len(states().turn), dtype=bool))) == {}


def test_states_are_those_in_which_an_action_was_taken() -> None:
    job = Job(Task("one", "test", ""))
    episode = Episode(job, Node(Kind.STATE, (1,), oracle=0.5))
    for k in range(3):
        action, state = Node(Kind.ACTION, (2,)), Node(Kind.STATE, (3,), oracle=0.1 * k, success=True)
        episode.end.add(action).add(state)
        episode.turns.append((action, state))
    bare = Episode(job, Node(Kind.STATE, (1,)))
    found = turns_of(map(Passed.of, [episode, bare], [(0.1, 0.2, 0.3, 0.9), (0.7,)]))
    assert found.value.tolist() == [0.1, 0.2, 0.3] and found.oracle.tolist() == [0.5, 0.0, 0.1]
    assert found.turn.tolist() == [0, 1, 2] and found.success.tolist() == [1, 1, 1]
    assert found.half.tolist() == [False, True, False]
    untold = Turns(**{**vars(states()), "oracle": np.full(len(states().turn), np.nan)})
    assert "auc_solvable" not in calibration(untold)["figures"]


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    calibration_report.draw(calibration(states()), "title", tmp_path / "c.png")
    assert (tmp_path / "c.png").read_bytes()[:4] == b"\x89PNG"
