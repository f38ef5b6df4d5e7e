"""The simulation of many workers: literal times, admission, cuts; the result file follows from its real runs."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import scale_runs, scale_sim
from benchmarks.scale_events import Begun, Costs, Portion, Setup, played, simulate
from benchmarks.scale_sweep import CODING, HEAVY, Pool, cells
from benchmarks.timed_envs import WaitingConfig, quantiles
from runners.command_line.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
COSTS = Costs(portion=1.0, episode=0.5, sync=0.25, update=3.0, learned=0.5)
RESULT = ROOT / "benchmarks" / "results" / "scale_sim.json"


def alike(batch: int, wanted: int) -> list[list[float]]:
    return [[1.0, 2.0]] * wanted


def uneven(batch: int, wanted: int) -> list[list[float]]:
    return np.random.default_rng([7, batch]).lognormal(0.0, 1.7, (wanted, 3)).tolist()


# -- times ------------------------------------------------------------------------------------------------------------


def test_one_worker_and_a_learner_that_take_turns() -> None:
    found = simulate(Setup(1, 4, 2, updates=6, warm=2), COSTS, alike)
    rollout, learner = 0.25 + 2 * (1 + 2 * 0.5 + 3), 3 + 4 * 0.5
    assert found.seconds_update == pytest.approx(rollout + learner)
    assert found.learner_idle == pytest.approx(rollout / (rollout + learner))
    assert found.worker_idle == pytest.approx(learner / (rollout + learner))
    assert found.episodes_per_s == pytest.approx(4 / (rollout + learner))


def test_staleness_hides_whichever_is_shorter() -> None:
    ahead = Setup(1, 4, 2, staleness=1, updates=8, warm=3)
    found = simulate(ahead, COSTS, alike)
    assert (found.seconds_update, found.worker_idle) == (pytest.approx(10.25), pytest.approx(0.0))
    slow = simulate(ahead, replace(COSTS, update=20.0), alike)
    assert (slow.seconds_update, slow.learner_idle) == (pytest.approx(22.0), pytest.approx(0.0))


def test_workers_without_a_portion_idle() -> None:
    """Four portions: eight workers are as fast as four, and three need two rounds."""
    seconds = {n: simulate(Setup(n, 8, 2, updates=6, warm=2), COSTS, alike).seconds_update for n in (3, 4, 8)}
    assert seconds[8] == seconds[4] == pytest.approx(0.25 + 5 + 7)
    assert seconds[3] == pytest.approx(seconds[4] + 5)


def test_an_update_waits_for_its_slowest_episode() -> None:
    def one_slow(batch: int, wanted: int) -> list[list[float]]:
        return [[100.0], *[[1.0]] * (wanted - 1)]

    found = simulate(Setup(4, 8, 2, updates=6, warm=2), COSTS, one_slow)
    assert found.seconds_update == pytest.approx(0.25 + 1 + 1 + 100 + 7)
    assert found.worker_idle > 0.7


@pytest.mark.parametrize("staleness", [0, 1, 2, 5])
@pytest.mark.parametrize("workers", [1, 3, 16])
def test_the_age_of_a_batch_is_that_of_the_trainer(staleness: int, workers: int) -> None:
    """Batch b is played with the policy after update max(0, b - 1 - S)."""
    found = simulate(Setup(workers, 12, 3, staleness=staleness, updates=12, warm=6), COSTS, uneven)
    assert found.lag == {staleness: 1.0}
    first = simulate(Setup(workers, 12, 3, staleness=staleness, updates=6, warm=0), COSTS, uneven)
    ages = [min(b - 1, staleness) for b in range(1, 7)]
    assert first.lag == {age: pytest.approx(ages.count(age) / 6) for age in sorted(set(ages))}


def test_the_same_settings_are_the_same_run() -> None:
    setup = Setup(5, 40, 4, staleness=1, extra=0.5, carry=True)
    assert simulate(setup, COSTS, uneven) == simulate(setup, COSTS, uneven)
    other = simulate(setup, COSTS, lambda batch, wanted: uneven(batch + 1000, wanted))
    assert simulate(setup, COSTS, uneven) != other


# -- portions that are cut -------------------------------------------------------------------------------------------


def portion(turns: Sequence[Sequence[float]], needed: int) -> Portion:
    return Portion(1, 0, [Begun(each, 0) for each in turns], needed)


def test_a_portion_ends_with_the_last_episode_that_is_needed() -> None:
    turns = [[1.0, 1.0], [2.0, 5.0, 1.0], [3.0]]
    assert played(portion(turns, 3), exact=False)[0] == 8.0
    wait, kept, cut = played(portion(turns, 2), exact=False)
    assert wait == 3.0 and [list(e.turns) for e in kept] == [[1.0, 1.0], [3.0]]
    assert [list(e.turns) for e in cut] == [[4.0, 1.0]], "a second of its turn of five has passed"


def test_rounds_wait_for_the_slowest_of_each() -> None:
    turns = [[1.0, 1.0], [2.0, 5.0, 1.0], [3.0]]
    assert played(portion(turns, 3), exact=True)[0] == 3.0 + 5.0 + 1.0
    wait, kept, cut = played(portion(turns, 2), exact=True)
    assert wait == 8.0 and len(kept) == 2 and [list(e.turns) for e in cut] == [[1.0]]


def test_what_is_cut_is_lost_or_goes_on() -> None:
    plain = Setup(4, 32, 8, updates=40, warm=8)
    whole, lost, carried = (
        simulate(setup, COSTS, uneven)
        for setup in (plain, replace(plain, extra=0.25), replace(plain, extra=0.25, carry=True))
    )
    assert whole.wasted == 0 and whole.lag == {0: 1.0}
    assert lost.wasted == pytest.approx(2 / 10) and lost.lag == {0: 1.0}
    assert lost.seconds_update < 0.8 * whole.seconds_update, "the slowest fifth is not waited for"
    assert carried.wasted == 0 and max(carried.lag) >= 2 and carried.lag[0] > 0.5
    assert sum(carried.lag.values()) == pytest.approx(1)


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="workers must be at least 1"):
        Setup(0, 8, 4)
    with pytest.raises(ValueError, match="extra must lie in"):
        Setup(1, 8, 4, extra=-0.1)
    with pytest.raises(ValueError, match="updates must be at least 5"):
        Setup(1, 8, 4, updates=4, warm=4)


# -- what is simulated -----------------------------------------------------------------------------------------------


def test_the_heavy_tail_is_fifty_times_the_median() -> None:
    pool = Pool([[0.01, 0.02], [0.02, 0.03, 0.5]], HEAVY)
    drawn = [seconds for turns in pool.turns_of(1, 50_000) for seconds in turns]
    found = quantiles(drawn)
    assert found["mean"] == pytest.approx(0.116, rel=0.1), "as recorded"
    assert found["p99"] / found["median"] == pytest.approx(50, rel=0.1)
    assert {len(turns) for turns in pool.turns_of(1, 100)} == {2, 3}
    recorded = replace(pool, tail=CODING)
    assert recorded.turns_of(3, 5) == recorded.turns_of(3, 5) != recorded.turns_of(4, 5)


def test_the_cells_reach_from_one_to_a_thousand_workers() -> None:
    everything = list(cells())
    assert {cell.setup.workers for cell in everything} >= {1, 2, 4, 512, 1000}
    assert {cell.setup.staleness for cell in everything} == {0, 1, 2}
    assert len(everything) == len({(c.tail, c.scaling, c.setup) for c in everything})


# -- the constants, and the result file ------------------------------------------------------------------------------


def simulated_run(setup: Setup, costs: Costs) -> scale_runs.Played:
    """What the real runs would hold if the simulation were right."""
    found = simulate(setup, costs, uneven)
    learner = found.seconds_update * (1 - found.learner_idle)
    run = scale_runs.RealRun(setup, [found.seconds_update], [found.seconds_update - learner], 0.0)
    return scale_runs.Played(run, [uneven(batch, setup.episodes) for batch in range(1, setup.updates + 1)])


def test_the_constants_come_back_from_runs_that_they_made() -> None:
    small, large = Setup(1, 32, 4, updates=10, warm=2), Setup(1, 64, 8, updates=10, warm=2)
    runs = [simulated_run(setup, COSTS) for setup in (small, large)]
    found = scale_runs.calibrated(*runs, sync=COSTS.sync)
    assert vars(found) == pytest.approx(vars(COSTS))
    with pytest.raises(ValueError, match="as many portions"):
        scale_runs.calibrated(runs[0], simulated_run(replace(large, portion=4), COSTS), 0.0)


@pytest.mark.parametrize(
    ("y", "expected"),
    [((3.0, 5.0), (1.0, 1.0)), ((1.0, 3.0), (0.0, 7 / 10)), ((3.0, 1.0), (2.0, 0.0)), ((-1.0, -3.0), (0.0, 0.0))],
)
def test_no_constant_is_below_0(y: tuple[float, float], expected: tuple[float, float]) -> None:
    """In a line through (2, y0) and (4, y1), or the nearest one."""
    assert scale_runs.line((2.0, 4.0), y) == pytest.approx(expected)


@pytest.fixture(scope="module")
def committed() -> scale_sim.Measured:
    return scale_sim.load(scale_sim.ScaleSim(again=True, out=RESULT))


def test_the_predictions_of_the_file_follow_from_its_runs(committed: scale_sim.Measured) -> None:
    result = json.loads(RESULT.read_text("utf-8"))
    rows = scale_sim.checks(committed)
    assert [row["run"] for row in rows] == [row["run"] for row in result["check"]]
    for row, written in zip(rows, result["check"], strict=True):
        assert row["predicted"] == pytest.approx(written["predicted"]) and row["off"] == pytest.approx(written["off"])
    judged = [{"condition": line, "holds": holds} for line, holds in scale_sim.conditions(rows)]
    assert judged == result["conditions"]
    seen = {(run.setup.workers, run.setup.staleness) for run in committed.checked}
    assert seen >= {(1, 1), (2, 0), (4, 0), (2, 1), (4, 1)}


def test_a_wrong_prediction_and_a_weak_control_are_noticed(committed: scale_sim.Measured) -> None:
    slower = [replace(run, update=[1.5 * s for s in run.update]) for run in committed.checked]
    rows = scale_sim.checks(replace(committed, checked=slower))
    assert not any(holds for line, holds in scale_sim.conditions(rows) if "at most 15 %" in line)
    alone = [replace(committed.small.run, setup=committed.small.run.setup)] * 2
    rows = scale_sim.checks(replace(committed, checked=alone))
    assert not all(holds for line, holds in scale_sim.conditions(rows) if line.startswith("with one worker"))


def program(*argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "benchmarks/scale_sim.py", *argv]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.runs
def test_the_program_simulates_again_from_its_file(tmp_path: Path) -> None:
    for name in ("scale_sim.json", "scale_turns.json"):
        (tmp_path / name).write_bytes((RESULT.parent / name).read_bytes())
    written = json.loads(RESULT.read_text("utf-8"))
    ran = program("--again", "--workers", "1", "4", "--out", str(tmp_path / "scale_sim.json"))
    found = json.loads((tmp_path / "scale_sim.json").read_text())
    assert ran.returncode == (0 if all(c["holds"] for c in written["conditions"]) else 1), ran.stdout + ran.stderr
    assert found["sweep"] == [row for row in written["sweep"] if row["workers"] in (1, 4)]
    assert found["real"] == written["real"]


@pytest.mark.runs
@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (("--again", "--out", "no-such/scale_sim.json"), "error: --again needs the runs of an earlier no-such"),
        (("--workers", "0"), "error: --workers must be numbers from 1 to 10000"),
    ],
)
def test_bad_input_is_one_line(argv: tuple[str, ...], line: str) -> None:
    ran = program(*argv)
    assert ran.returncode == 1 and ran.stderr.startswith(line) and ran.stderr.count("\n") == 1


@pytest.mark.runs
@pytest.mark.usefixtures("own_cache")
def test_a_real_run_tells_what_its_turns_took(tmp_path: Path) -> None:
    setup = Setup(2, 8, 4, staleness=1, updates=3, warm=1)
    found = scale_runs.train(setup, scale_runs.WAITING, tmp_path, ["--waiting.median", "0.002"])
    assert [len(batch) for batch in found.turns] == [8, 8, 8] and len(found.run.update) == len(found.run.rollout) == 2
    turns = [seconds for batch in found.turns for episode in batch for seconds in episode]
    assert 4 * 24 <= len(turns) <= 5 * 24 and min(turns) > 0
    assert all(0 < rollout < update for rollout, update in zip(found.run.rollout, found.run.update, strict=True))


def test_a_folder_with_another_run_is_refused(tmp_path: Path) -> None:
    known = {"argv": ["--updates", "3"], "text": "", "load": 0.5}
    (tmp_path / "ended.json").write_text(json.dumps(known))
    with pytest.raises(UserError, match="holds a run with other settings: name another folder with --keep"):
        scale_runs.train(Setup(1, 8, 4), "", tmp_path)


def test_the_waiting_environment_checks_its_settings() -> None:
    for settings, line in (({"median": 0.0}, "median must be above 0"), ({"ratio": 0.5}, "ratio must lie in")):
        with pytest.raises(ValueError, match=line):
            WaitingConfig(**settings)
