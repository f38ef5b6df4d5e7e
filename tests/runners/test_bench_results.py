"""Figures of a row: means over entries by hand, and tasks whose environment broke."""

import math
from dataclasses import replace

import numpy as np
import pytest

from agent_envs.core import Task
from agent_envs.isolation.faults import FaultKind, Stage
from agents.tree.episode import Fault, Job
from runners.benching.results import EntryResult, Row, TaskResult, mean_over_entries
from runners.statistics.intervals import bootstrap


def entry(name: str, successes: list[bool | None]) -> EntryResult:
    results = tuple(TaskResult(f"{name}-{i}", one, float(one or 0), 2, 10) for i, one in enumerate(successes))
    return EntryResult(name, "f", results, 1.5)


def row(*entries: EntryResult) -> Row:
    return Row("small-1", "content", True, {"kind": "model", "weights": "w"}, 0, {}, entries)


def test_each_entry_weighs_the_same_whatever_its_size() -> None:
    big, small = [True] * 90 + [False] * 10, [True, False]
    assert row(entry("a", list(big)), entry("b", list(small))).success.mean == pytest.approx((0.9 + 0.5) / 2)
    pooled = bootstrap([float(x) for x in (*big, *small)]).mean
    assert pooled != pytest.approx((0.9 + 0.5) / 2)


def test_the_interval_resamples_tasks_within_their_entry() -> None:
    same = [[1.0] * 20, [0.0] * 20]
    known = mean_over_entries(same)
    assert (known.mean, known.low, known.high) == (0.5, 0.5, 0.5), "between the entries nothing is drawn"
    one = mean_over_entries([[1.0, 0.0] * 50])
    wide = 1.96 * 0.5 / np.sqrt(100)
    assert one.low == pytest.approx(0.5 - wide, abs=0.02) and one.high == pytest.approx(0.5 + wide, abs=0.02)
    two = mean_over_entries([[1.0, 0.0] * 50] * 2)
    assert two.high - two.low == pytest.approx((one.high - one.low) / np.sqrt(2), rel=0.1)


def test_a_task_whose_environment_broke_is_in_no_mean() -> None:
    broken = entry("a", [True, None, False, True])
    assert broken.broken == 1 and broken.mean("success").mean == pytest.approx(2 / 3)
    assert math.isnan(broken.of("success")[1])
    fault = TaskResult.of(Fault(Job(Task("t", "test", "")), FaultKind.RAISED, Stage.STEP, "x"))
    assert fault == TaskResult("t", None)
    with pytest.raises(ValueError, match="a value of each"):
        mean_over_entries([[1.0], [math.nan]])


def test_the_digest_is_of_results_and_not_of_seconds() -> None:
    one = row(entry("a", [True, False]))
    later = replace(one, entries=(replace(one.entries[0], seconds=99.0),))
    assert later.digest == one.digest
    others = (
        row(entry("a", [True, True])),
        replace(one, agent={"kind": "model", "weights": "v"}),
        replace(one, seed=1),
        replace(one, content="other"),
        replace(one, settings={"decoding": "sampled"}),
    )
    assert len({one.digest, *(other.digest for other in others)}) == 1 + len(others)
