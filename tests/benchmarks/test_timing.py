"""The cost protocol's own arithmetic, and that a benchmark can fail."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from benchmarks import group, selfac_cost, timing
from benchmarks.timing import Spread


@pytest.mark.runs
def test_programs_are_run_in_turn() -> None:
    ran: list[str] = []
    programs = {name: (lambda name=name: ran.append(name)) for name in "ab"}
    times = timing.interleaved(programs, rounds=3)
    assert "".join(ran) == "ab" + "ab" + "ba" + "ab"  # a warm-up first, then every other round backwards
    assert {name: len(values) for name, values in times.items()} == {"a": 3, "b": 3}


def test_a_ratio_is_taken_within_a_round() -> None:
    assert timing.ratio([2.0, 40.0, 9.0], [1.0, 20.0, 3.0]) == Spread(2.0, 2.0, 3.0)


def allocate(megabytes: int) -> tuple[timing.Program, timing.Program]:
    return (lambda: torch.ones(10)), (lambda: torch.ones(megabytes * 250_000))


@pytest.mark.runs
def test_memory_is_the_peak_of_the_program_alone() -> None:
    used = timing.peak_memory(allocate, 60)
    if used is None:
        pytest.skip("this system does not tell")
    assert used / timing.MB == pytest.approx(60, abs=3)


CELL = selfac_cost.Cell(
    size="5M",
    turns=8,
    rounds=5,
    seconds={},
    tokens={"plain": 860, "self-ac": 1004, "naive n+1": 5204, "naive 2n+1": 7984},
    baseline="plain",
    time=Spread(1.18, 1.1, 1.2),
    dense=Spread(1.2, 1.1, 1.3),
    naive={"naive n+1": Spread(4.5, 4, 5)},
    memory={"self-ac": 130, "plain": 100, "plain, transformers": 110},
)
BAD = {
    "too slow": (replace(CELL, time=Spread(1.40, 1.3, 1.5)), 2),  # the median over the cells and the cell itself
    "too much memory": (replace(CELL, memory={**CELL.memory, "self-ac": 140}), 1),
    "hardly faster than naive": (replace(CELL, naive={"naive n+1": Spread(4.0, 4, 4)}), 1),
}


def test_conditions_of_a_good_cell_hold() -> None:
    assert all(holds for _, holds in selfac_cost.conditions([CELL], quick=False))


@pytest.mark.parametrize("name", BAD)
def test_conditions_of_a_bad_cell_fail(name: str) -> None:
    cell, failures = BAD[name]
    assert [holds for _, holds in selfac_cost.conditions([cell], quick=False)].count(False) == failures


def test_a_group_must_not_be_slower_than_its_rows() -> None:
    tokens = {"tree": 100, "padded": 200, "separate": 105}
    gain = {"padded": Spread(1.9, 1, 2), "separate": Spread(1.02, 1, 2)}
    cell = group.Cell("2M", 60, [128] * 8, {}, tokens, gain)
    assert [holds for _, holds in group.conditions([cell], quick=False)] == [True, True]
    slower = replace(cell, gain={**gain, "separate": Spread(0.95, 1, 2)})  # above 0.85 of the tokens, and still a loss
    assert [holds for _, holds in group.conditions([slower], quick=False)] == [True, False]


def test_a_condition_that_fails_is_printed_and_is_the_exit_status(tmp_path: Path) -> None:
    said, out = io.StringIO(), tmp_path / "result.json"
    console = Console(file=said, width=200)
    assert timing.finish({"cells": []}, [("one", True), ("two", False)], out, console) == 1
    assert "not met: two" in said.getvalue() and "one" not in said.getvalue().splitlines()[0]
    written = json.loads(out.read_text("utf-8"))
    assert written["conditions"] == [{"condition": "one", "holds": True}, {"condition": "two", "holds": False}]
    assert written["versions"]["torch"] and written["hardware"]
    assert timing.finish({}, [("one", True)], out, console) == 0
    assert timing.finish({}, [], out, console) == 1  # nothing checked is nothing shown
