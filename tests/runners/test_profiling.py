"""Where the time goes: the phases of an update add up to the whole, and a traced update leaves a trace and a table."""

import gzip
import io
import json
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from rich.console import Console
from run_cases import training

from agents.compiled.threads import in_threads
from runners.training.phases import PHASES, Clock
from runners.training.profiling import Profiling, phases

NAMES = [name for name, *_ in PHASES]


def test_the_clock_sees_what_no_phase_names() -> None:
    clock = Clock()
    clock.begin()
    time.sleep(0.05)
    assert 0.05 <= clock.other({}) < 0.5
    time.sleep(0.05)
    clock.end()
    clock.begin()
    assert 0.05 <= clock.other({}) < 0.5, "what came after a row is in the next one"
    assert clock.other({"seconds_update": 10.0}) == 0, "never below 0"


def test_the_table_adds_up() -> None:
    lines = phases({"seconds_rollout": 3.0, "seconds_update": 1.0, "seconds_env": 2.0}).splitlines()
    assert [line.split() for line in lines] == [
        ["rollout", "3.000", "s", "75.0%"], ["update", "1.000", "s", "25.0%"], ["the", "whole", "update", "4.000", "s"]
    ]  # fmt: skip


@pytest.mark.parametrize(("left", "traced"), [(3, 2), (1, 1)])
def test_the_second_update_is_traced_or_the_only_one(tmp_path: Path, left: int, traced: int) -> None:
    profiling = Profiling(tmp_path, left, Console(file=io.StringIO()))
    for update in range(1, left + 1):
        profiling.run(lambda: {"seconds_update": 1.0})
        assert (tmp_path / "profile").exists() == (update >= traced)


def test_what_other_threads_compute_is_in_the_table(tmp_path: Path) -> None:
    def update() -> Mapping[str, float]:
        in_threads([lambda: None, lambda: torch.special.i0e(torch.ones(9)).sum().item()])
        return {"seconds_update": 1.0}

    update()  # the threads are there before the trace begins
    Profiling(tmp_path, 1, Console(file=io.StringIO())).run(update)
    assert "special_i0e" in (tmp_path / "profile" / "table.txt").read_text()


ARGV = ("--updates", "3", "--test-tasks", "0", "--eval-every", "0")


@pytest.mark.usefixtures("own_cache")
def test_a_run_is_traced_where_that_was_asked(tmp_path: Path) -> None:
    with training(tmp_path / "run", *ARGV, "--profile") as run:
        run.run()
    folder = tmp_path / "run" / "profile"
    events = json.loads(gzip.decompress((folder / "trace.json.gz").read_bytes()))["traceEvents"]
    assert any("aten::mm" in str(event.get("name")) for event in events)
    assert "rollout" in (table := (folder / "table.txt").read_text()) and "the whole update" in table


@pytest.mark.usefixtures("own_cache")
def test_the_phases_of_a_run_add_up_to_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = 0.0
    with training(tmp_path / "run", *ARGV) as run:
        update = run.next_update

        def timed() -> Mapping[str, float]:
            nonlocal whole
            started = time.monotonic()
            try:
                return update()
            finally:
                whole += time.monotonic() - started

        monkeypatch.setattr(run, "next_update", timed)
        run.run()
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    sums = [sum(row.get(name, 0.0) for name in NAMES) for row in rows if row["kind"] == "update"]
    assert len(sums) == 3 and 0.5 * whole < sum(sums) <= whole  # the rest: the record and checkpoint of the last one
    assert not (tmp_path / "run" / "profile").exists()
