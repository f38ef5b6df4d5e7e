"""1 to 1,000 rollout workers, simulated with what real runs took, and checked against real runs with 1, 2 and 4.

    python benchmarks/scale_sim.py            # the real runs, about twenty minutes, then the simulation
    python benchmarks/scale_sim.py --again    # the simulation alone, with the runs of the result file

The runs of the check play an environment that waits (`timed_envs`), so that four workers share two processors fairly;
its turns have a lognormal tail whose 99th percentile is 50 times the median. The constants come from two runs with one
worker; every other run is predicted from them. Simulated are this environment and the coding environment, the latter
as recorded and with such a tail. Exits with 1 where a prediction is more than 15 % off, or where one of the
controls, which leave out a part of the model, is not far off.
"""

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import tyro
from rich.console import Console
from rich.progress import track

from benchmarks.scale_events import Costs, Setup, Turns
from benchmarks.scale_runs import (
    CODE,
    CONTROLS,
    WAITING,
    Played,
    RealRun,
    calibrated,
    from_plain,
    predicted,
    sync_seconds,
    train,
)
from benchmarks.scale_sweep import CODING, HEAVY, STRONG, WAITS, WEAK, WORKERS, cells, row_of
from benchmarks.timed_envs import quantiles
from benchmarks.timing import finish, one_thread, print_table
from runners.command_line.errors import UserError
from runners.command_line.plain import dump_json

LIMIT = 0.15
FAR = 0.3
"""How far a control must be off where it is worst."""
SMALL, LARGE = Setup(1, 32, 4, updates=8, warm=2), Setup(1, 64, 8, updates=8, warm=2)
"""The runs that the constants of the check come from."""
CHECKED = (
    *(replace(SMALL, workers=n, staleness=s) for s in (0, 1) for n in (1, 2, 4) if (n, s) != (1, 0)),
    *(replace(SMALL, workers=n, exact=True) for n in (1, 2, 4)),
)
CODE_SMALL, CODE_LARGE = Setup(1, 32, 4, updates=4, warm=1), Setup(1, 64, 8, updates=3, warm=1)


@dataclass(frozen=True)
class ScaleSim:
    """Simulate runs with many workers."""

    again: bool = False
    """Take the real runs from the result file and make none."""
    workers: tuple[int, ...] = WORKERS
    """Numbers of workers to simulate."""
    seed: int = 0
    """Seed of the simulated episodes."""
    keep: Path | None = None
    """Folder for the real runs, where those that have ended are not repeated; otherwise they are removed."""
    out: Path = Path("benchmarks/results/scale_sim.json")
    """File for the result; the turns of the real runs lie beside it, in scale_turns.json."""

    def __post_init__(self) -> None:
        if not self.workers or min(self.workers) < 1 or max(self.workers) > 10_000:
            raise UserError("--workers must be numbers from 1 to 10000")
        if self.again and not (self.out.exists() and self.turns.exists()):
            raise UserError(f"--again needs the runs of an earlier {self.out} and {self.turns}: leave it out once")

    @property
    def turns(self) -> Path:
        """File for the turns."""
        return self.out.with_name("scale_turns.json")


@dataclass(frozen=True)
class Measured:
    """All real runs."""

    small: Played
    large: Played
    code: tuple[Played, Played]
    checked: Sequence[RealRun]
    sync: float
    """Seconds until a worker has a new policy."""

    def costs(self) -> Mapping[str, Costs]:
        """Constants by environment."""
        return {
            CODING: calibrated(*self.code, self.sync),
            WAITS: calibrated(self.small, self.large, self.sync),
        }

    def episodes(self) -> Mapping[str, list[Turns]]:
        """The turns of all episodes of the runs with one worker, by environment."""
        runs = {CODING: self.code, WAITS: (self.small, self.large)}
        return {
            name: [turns for run in both for batch in run.turns for turns in batch if turns]
            for name, both in runs.items()
        }


def measure(keep: Path | None, console: Console) -> Measured:
    """Makes the real runs, one after the other. Raises UserError."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = keep or Path(temporary)
        sync = sync_seconds(console)
        todo = [("waiting", WAITING, setup) for setup in (SMALL, LARGE, *CHECKED)]
        todo += [("code", CODE, setup) for setup in (CODE_SMALL, CODE_LARGE)]
        runs = []
        for number, (name, text, setup) in enumerate(track(todo, "real runs", console=console)):
            runs.append(train(setup, text, folder / f"{number}-{name}-{setup.workers}"))
            console.print(f"{name}, {shown(setup)}: {runs[-1].run.seconds:.2f} s an update", highlight=False)
    small, large, *checked, code_small, code_large = runs
    return Measured(small, large, (code_small, code_large), [each.run for each in checked], sync)


def shown(setup: Setup) -> str:
    words = f"{setup.workers} workers, {setup.episodes} episodes in portions of {setup.portion}, S = {setup.staleness}"
    return words + (", exact" if setup.exact else "")


def checks(measured: Measured) -> Sequence[Mapping[str, Any]]:
    """Every checked run, as measured and as predicted."""
    costs = measured.costs()[WAITS]
    rows = []
    for run in (measured.small.run, *measured.checked):
        seconds = predicted(run.setup, costs, measured.small.turns_of)
        off = {name: value / run.seconds - 1 for name, value in seconds.items()}
        rows.append({"run": shown(run.setup), "measured": run.seconds, "predicted": seconds, "off": off})
    return rows


def conditions(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, bool]]:
    """The first row is the run that the constants come from: it is fitted and not predicted."""
    for row in rows[1:]:
        off = row["off"]["simulated"]
        yield f"{row['run']}: the prediction is off by {off:+.1%}, at most 15 %", abs(off) <= LIMIT
    for control in CONTROLS:
        worst = max((row["off"][control] for row in rows[1:]), key=abs)
        yield f"{control}: a prediction is off by {worst:+.1%}, at least 30 %", abs(worst) >= FAR


def print_checks(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    columns = ("real run", "measured", "predicted", "off", *(f"… {control}" for control in CONTROLS))
    print_table(
        "seconds an update", columns,
        (
            (row["run"], row["measured"], row["predicted"]["simulated"],
             *(f"{row['off'][name]:+.1%}" for name in ("simulated", *CONTROLS)))
            for row in rows
        ), console,
    )  # fmt: skip


def print_sweep(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Episodes a second and the learner's idle share, S = 0 … 2 and with more begun than needed."""
    ways = [(0, 0.0, False), (1, 0.0, False), (2, 0.0, False), (0, 0.25, False), (0, 0.25, True)]
    names = ("S = 0", "S = 1", "S = 2", "a quarter more", "… which go on")
    for scaling in (WEAK, STRONG):
        for tail in (CODING, HEAVY, WAITS):
            mine = [row for row in rows if (row["scaling"], row["tail"]) == (scaling, tail)]
            table = []
            for workers in dict.fromkeys(row["workers"] for row in mine):
                by = {(r["staleness"], r["extra"], r["carry"]): r for r in mine if r["workers"] == workers}
                cell = [f"{by[way]['episodes_per_s']:.4g} ({by[way]['learner_idle']:.0%})" for way in ways]
                table.append((workers, *cell))
            print_table(f"{scaling}, {tail}: episodes/s (learner idle)", ("workers", *names), table, console)


def load(settings: ScaleSim) -> Measured:
    """The real runs of the result file. Raises UserError."""
    try:
        result, turns = (json.loads(file.read_text("utf-8")) for file in (settings.out, settings.turns))
        real = result["real"]
        small, large, *code = (
            from_plain({"run": run, "turns": turns[name]}) for name, run in real["calibration"].items()
        )
        checked = [from_plain({"run": run, "turns": ()}).run for run in real["checked"]]
        return Measured(small, large, (code[0], code[1]), checked, real["sync"])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise UserError(f"{settings.out} or {settings.turns} is damaged ({error!r}): leave --again out once") from None


def saved(measured: Measured, turns: Path) -> Mapping[str, Any]:
    """Writes the turns, and returns the rest for the result file."""
    named = dict(
        zip(
            ("small", "large", "code small", "code large"),
            (measured.small, measured.large, *measured.code),
            strict=True,
        )
    )
    turns.parent.mkdir(parents=True, exist_ok=True)
    turns.write_text(dump_json({name: run.turns for name, run in named.items()}, indent=None), "utf-8")
    return {
        "calibration": {name: asdict(run.run) for name, run in named.items()},
        "checked": [asdict(run) for run in measured.checked],
        "sync": measured.sync,
    }


def main() -> int:
    console = Console(width=150)
    try:
        settings = tyro.cli(ScaleSim, description=__doc__)
        one_thread()
        measured = load(settings) if settings.again else measure(settings.keep, console)
    except UserError as error:
        sys.exit(f"error: {error}")
    rows = checks(measured)
    print_checks(rows, console)
    costs, episodes = measured.costs(), measured.episodes()
    swept = []
    for cell in track(list(cells(settings.workers)), "simulated runs", console=console):
        source = WAITS if cell.tail == WAITS else CODING
        swept.append(row_of(cell, costs[source], episodes[source], settings.seed))
    print_sweep(swept, console)
    result = {
        "processors": len(os.sched_getaffinity(0)),
        "real": saved(measured, settings.turns),
        "costs": {name: asdict(found) for name, found in costs.items()},
        "turns": {name: quantiles([s for turns in each for s in turns]) for name, each in episodes.items()},
        "check": rows,
        "sweep": swept,
    }
    return finish(result, conditions(rows), settings.out, console)


if __name__ == "__main__":
    sys.exit(main())
