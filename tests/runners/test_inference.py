"""Choosing by scores, and giving up early, on episodes written by hand; what has no effect is one line."""

import csv
import io
import math
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from inference_cases import line

from agent_envs.identity.env import IdentityEnv
from agents.rollout.search.settings import LogprobForm, ScorerKind, Scoring
from runners.command_line.errors import UserError
from runners.command_line.parse import parse
from runners.inference import best_of_n, early_stop
from runners.inference.episode_scores import Scores, answer_of, running, scores
from runners.inference.evaluate_settings import Evaluate, parts_of
from runners.inference.program import StudyResult
from runners.inference.report import as_json, write
from runners.inference.settings import Agent
from runners.inference.success_by_tokens import Point, rows_of
from runners.statistics.intervals import bootstrap_gain

K = ScorerKind
THREE = [
    line(0, False, (0.1, 0.9, 0.2), (-1.0, -3.0), answer="x", luck=0.1),
    line(0, True, (0.1, 0.4, 0.8), (-2.0, -1.0), answer="y", luck=0.2),
    line(0, False, (0.1, 0.5, 0.3), (-4.0, -4.0), answer="x", luck=0.9),
]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (K.VALUE, [0.9, 0.4, 0.5]),
        (K.END_VALUE, [0.2, 0.8, 0.3]),
        (K.LOGPROB, [-2.0, -1.5, -4.0]),
        (K.VALUE_LOGPROB, [0.9 - 1.0, 0.4 - 0.75, 0.5 - 2.0]),
        (K.END_VALUE_LOGPROB, [0.2 - 1.0, 0.8 - 0.75, 0.3 - 2.0]),
        (K.RANDOM, [0.1, 0.2, 0.9]),
        (K.MAJORITY, [2.0, 1.0, 2.0]),
        (K.ORACLE, [0.0, 1.0, 0.0]),
    ],
)
def test_scores_by_hand(kind: ScorerKind, expected: list[float]) -> None:
    assert scores(THREE, Scoring(kind, weight=0.5)) == pytest.approx(expected)
    best = best_of_n.chosen(THREE, Scoring(kind, weight=0.5))
    assert best is THREE[expected.index(max(expected))]


def test_the_sum_of_log_probabilities_favours_short_episodes() -> None:
    short, long = line(0, False, logps=(-3.0,)), line(0, True, logps=(-1.0,) * 4)
    assert best_of_n.chosen([short, long], Scoring(K.LOGPROB, LogprobForm.MEAN)) is long
    assert best_of_n.chosen([short, long], Scoring(K.LOGPROB, LogprobForm.SUM)) is short


def test_states_are_scored_by_what_came_before_them() -> None:
    one = line(0, True, (0.1, 0.4, 0.8), (-2.0, -1.0), oracle=(0.5, 0.6, 1.0))
    assert running(one, Scoring(K.VALUE)) == [0.1, 0.4]
    assert running(one, Scoring(K.LOGPROB)) == [0.0, -2.0]
    assert running(one, Scoring(K.VALUE_LOGPROB, weight=0.1)) == pytest.approx([0.1, 0.2])
    assert running(one, Scoring(K.ORACLE)) == [0.5, 0.6]
    assert (
        running(one, Scoring(K.RANDOM))
        == running(one, Scoring(K.RANDOM))
        != running(line(0, True, luck=0.4), Scoring(K.RANDOM))
    )


def test_an_answer_is_what_was_done_not_what_was_thought() -> None:
    grammar = IdentityEnv().grammar
    said = [f"<think>{t}</think><action>SAY({w})</action>" for t, w in (("hm", "red"), ("so", "Red"), ("hm", "blue"))]
    assert answer_of(said[0], grammar) == answer_of(said[1], grammar) != answer_of(said[2], grammar)
    assert answer_of("so it is \\boxed{ 7 }", grammar) == answer_of("no: \\boxed{7}", None) == "7"
    assert answer_of(" nothing that could be read ", grammar) == "nothing that could be read"


def world(tasks: int, n: int, skill: float, seed: int = 0) -> list[list[Scores]]:
    """Episodes whose value knows the verdict to some part, and whose log-probability does to another."""
    rng = Random(seed)
    found = []
    for task in range(tasks):
        mine = []
        for _ in range(n):
            won = rng.random() < 0.4
            value = skill * won + rng.gauss(0, 0.3)
            logps = (won * 0.5 - 2 + rng.gauss(0, 0.5),) * 2
            mine.append(line(task, won, (0.4, value, value), logps, luck=rng.random()))
        found.append(mine)
    return found


def test_success_and_tokens_are_means_over_all_groups() -> None:
    tasks = [
        [*THREE, line(0, True, (0, 0.1, 0))],
        [line(1, True, (0, 0.2, 0), tokens=(1, 2)), line(1, False, (0, 0.1, 0))],
    ]
    point = best_of_n.point(tasks, Scoring(K.VALUE), 2, value_tokens=7.0)
    assert point.success == (0.0, 1.0) and point.tokens == (20.0, 13.0) and point.value_tokens == 14.0
    assert best_of_n.point(tasks, Scoring(K.ORACLE), 2, 7.0) == Point(
        Agent.BEST_OF_N, K.ORACLE, 2, (1.0, 1.0), (20.0, 13.0), 0.0
    )
    assert math.isnan(best_of_n.point(tasks, Scoring(K.VALUE), 4, 7.0).success[1]), "too few episodes are no failure"


def test_a_value_that_knows_beats_chance_and_is_below_the_oracle() -> None:
    tasks = world(300, 4, skill=0.5)
    rate = {
        kind: np.mean(best_of_n.point(tasks, Scoring(kind), 4, 0.0).success) for kind in (K.RANDOM, K.VALUE, K.ORACLE)
    }
    assert rate[K.RANDOM] + 0.15 < rate[K.VALUE] < rate[K.ORACLE]
    blind = best_of_n.point(world(300, 4, skill=0.0), Scoring(K.VALUE), 4, 0.0)
    assert abs(float(np.mean(blind.success)) - 0.4) < 0.08, "the control: a value that knows nothing is chance"


def test_the_weight_is_chosen_by_what_helps() -> None:
    weights = best_of_n.choose_weight(world(300, 4, skill=0.0), Scoring(K.VALUE_LOGPROB), 4)
    tried = best_of_n.candidates(world(300, 4, skill=0.0), Scoring(K.VALUE_LOGPROB))
    assert weights.weight in [w.weight for w in tried[4:]], "a value that knows nothing should count little"
    good = best_of_n.choose_weight(world(300, 4, skill=3.0), Scoring(K.VALUE_LOGPROB), 4)
    assert good.weight <= tried[-1].weight / 50
    mixed = world(400, 4, skill=0.4, seed=3)
    chosen = best_of_n.choose_weight(world(400, 4, skill=0.4, seed=2), Scoring(K.VALUE_LOGPROB), 4)
    rate = {
        k: np.mean(best_of_n.point(mixed, replace(chosen, kind=k), 4, 0.0).success)
        for k in (K.VALUE, K.LOGPROB, K.VALUE_LOGPROB)
    }
    assert rate[K.VALUE_LOGPROB] > max(rate[K.VALUE], rate[K.LOGPROB])


# -- early stop ----------------------------------------------------------------------------------------------------


def test_the_threshold_loses_no_more_than_it_may() -> None:
    won = [line(i, True, (0.9, v, 1.0), tokens=(2, 4)) for i, v in enumerate((0.3, 0.5, 0.7, 0.8) * 100)]
    lost = [
        line(400 + i, False, (0.9, v, 0.0), tokens=(2, 4)) for i, v in enumerate((0.1, 0.2, 0.4, 0.6, 0.75, 0.9) * 100)
    ]
    lines = [*won, *lost]
    (level, _) = early_stop.highest(lines, Scoring(K.VALUE), 1, 0.0)
    assert level.threshold == 0.3 and early_stop.saved(lines, level) == pytest.approx(2 * 4 / 36)
    (level, _) = early_stop.highest(lines, Scoring(K.VALUE), 1, 0.1)
    assert level.threshold == 0.3, "a tenth would be lost here, and on other tasks as easily more"
    (level, _) = early_stop.highest(lines, Scoring(K.VALUE), 1, 0.13)
    assert level.threshold == 0.5 and early_stop.saved(lines, level) == pytest.approx(3 * 4 / 36)
    assert [level.turns(x) for x in lost[:6]] == [1, 1, 1, 2, 2, 2] and level.turns(won[0]) == 1
    figures = early_stop.figures(lines, level)
    assert figures["success_lost"].mean == pytest.approx(0.1) and figures["failing_stopped"].mean == pytest.approx(0.5)
    assert figures["failing_saved"].mean == pytest.approx(12 / 36) and figures["tokens_saved"].mean == pytest.approx(
        16 / 60
    )
    assert figures["failing_saved"].low < 12 / 36 < figures["failing_saved"].high
    everything = early_stop.highest([*lost], Scoring(K.VALUE), 1, 0.0)[0]
    assert everything.threshold == math.inf and early_stop.saved(lost, everything) == pytest.approx(24 / 36)


def test_where_values_fall_with_the_turns_the_rank_within_a_turn_tells_more() -> None:
    """One threshold for all turns, which successes must stay above to their end, says nothing early on."""
    rng = Random(0)
    lines = []
    for i in range(400):
        won = i % 4 < 2
        values = [0.9 - 0.2 * k + 0.15 * won + 0.05 * rng.random() for k in range(5)]
        lines.append(line(i, won, (*values, 0.0), logps=(-1.0,) * 5))
    level, turn = early_stop.highest(lines, Scoring(K.VALUE), 2, 0.0)
    assert early_stop.saved(lines, turn) > 0.5 > early_stop.saved(lines, level) + 0.2
    assert early_stop.choose(lines, [Scoring(K.VALUE)], 2, 0.0) == turn
    other = [line(i, x.success > 0, x.values, x.logps) for i, x in enumerate(lines[::-1])]
    assert early_stop.saved(other, turn) > 0.5
    assert early_stop.saved(lines, early_stop.choose(lines, [Scoring(K.RANDOM)], 2, 0.0)) < 0.1, "the control"


def test_where_every_other_task_has_no_success_ranks_give_nothing_up() -> None:
    lines = [line(i, i % 2 == 0, (0.9, 0.5, 1.0), tokens=(2, 4)) for i in range(40)]
    _, turn = early_stop.highest(lines, Scoring(K.VALUE), 1, 0.0)
    assert turn.threshold == -math.inf and early_stop.saved(lines, turn) == 0
    chosen = early_stop.choose(lines, [Scoring(K.VALUE)], 1, 0.0)
    assert early_stop.figures(lines, chosen)["success_lost"].mean == 0


def test_what_was_allowed_on_validation_tasks_is_lost_on_others() -> None:
    """Many turns without a signal: whoever ranks episodes among themselves stops hardly any, and then many."""

    def played(seed: int, n: int) -> list[Scores]:
        rng = Random(seed)
        return [line(i, rng.random() < 0.5, [rng.random() for _ in range(21)], (-1.0,) * 20) for i in range(n)]

    valid, test = played(0, 200), played(1, 600)
    _, turn = early_stop.highest(valid, Scoring(K.VALUE), 1, 0.0)
    itself = early_stop.at_most(valid, replace(turn, of_turn=early_stop.ladder(valid, Scoring(K.VALUE))), 0.0)
    lost = {
        name: early_stop.figures(test, stop)["success_lost"].mean
        for name, stop in {"turn": turn, "itself": itself}.items()
    }
    assert lost["turn"] <= 0.03 < 0.06 < lost["itself"]


# -- what is told --------------------------------------------------------------------------------------------------


def found() -> StudyResult:
    tasks = world(60, 4, skill=1.0)
    points = [best_of_n.point(tasks, Scoring(kind), n, 3.0) for kind in (K.RANDOM, K.LOGPROB, K.VALUE) for n in (2, 4)]
    return StudyResult(points, weights={K.VALUE_LOGPROB: 0.5})


def test_differences_are_paired_and_at_the_same_budget() -> None:
    rows = rows_of(found().points)
    assert [(r.scorer, r.budget) for r in rows[:3]] == [(K.RANDOM, 2), (K.RANDOM, 4), (K.LOGPROB, 2)]
    value = next(r for r in rows if r.scorer == K.VALUE and r.budget == 4)
    assert set(value.over) == {K.RANDOM, K.LOGPROB} and value.over[K.RANDOM].low > 0
    one, same = found().points[0], found().points[0]
    gain = bootstrap_gain(one.success, same.success)
    assert (gain.low, gain.high) == (0, 0), "nothing differs from itself"


def test_files_hold_what_was_found(tmp_path: Path) -> None:
    out = tmp_path / "e.json"
    write(found(), "title", out)
    table = list(csv.DictReader(io.StringIO(out.with_suffix(".csv").read_text())))
    assert len(table) == 6 and float(table[5]["over_random_low"]) > 0 and table[0]["over_random_mean"] == ""
    text = out.with_suffix(".md").read_text()
    assert "| value | 4 |" in text and text.count("\n| ") == 1 + 1 + 6, "head, rule and six rows"
    assert out.with_suffix(".png").read_bytes()[:4] == b"\x89PNG"
    assert len(as_json(found())["rows"]) == 6
    with pytest.raises(UserError, match="cannot write"):
        write(found(), "title", tmp_path / "no" / "e.json")


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("--scorer", "value"), "scorer only works with agent best-of-n, tot or early-stop"),
        (("--agent", "tot", "--scorer", "majority"), "tot cannot use the scorer majority"),
        (("--agent", "tot", "--scorer", "value", "value"), "named twice"),
        (("--agent", "best-of-n", "--samples", "3"), "samples only works with react and early-stop"),
        (("--agent", "best-of-n", "--best-of-n.n", "1"), "--best-of-n.n must be different numbers from 2 to 10000"),
        (("--agent", "best-of-n", "--tot.branch", "3"), "unknown flag --tot.branch"),
        (("--agent", "tot", "--scorer", "value", "--logprob.form", "sum"), "unknown flag --logprob.form"),
        (("--agent", "tot", "--scorer", "value", "--validation.tasks", "9"), "unknown flag --validation.tasks"),
        (("--best-of-n.n", "2"), "unknown flag --best-of-n.n"),
        (("--agent", "early-stop", "--early-stop.max-loss", "1"), "--early-stop.max-loss must lie in 0..1"),
        (("--agent", "early-stop", "--scorer", "end_value"), "early-stop cannot use the scorer end_value"),
    ],
)
def test_settings_without_effect_are_refused(argv: tuple[str, ...], told: str) -> None:
    with pytest.raises(UserError, match=told) as error:
        parse(Evaluate, parts_of, ["--env", "identity", *argv], about="")
    assert "\n" not in str(error.value)


def test_the_settings_that_act_are_there() -> None:
    evaluate, parts = parse(
        Evaluate, parts_of, ["--env", "identity", "--agent", "best-of-n", "--scorer", "value+logprob"], about=""
    )
    assert evaluate.scorer == (K.VALUE_LOGPROB,) and {"best_of_n", "logprob", "validation"} <= set(parts)
    _, plain = parse(Evaluate, parts_of, ["--env", "identity"], about="")
    assert not {"best_of_n", "logprob", "validation", "tot", "sweep", "early_stop"} & set(plain)
