"""Compares algorithms: the same tasks, the same number of environment steps, the same seeds; one report.

    turnwise compare --env wiki --algos selfac grpo --seeds 5 --env-steps 50000
    turnwise compare --config study.yaml --jobs 2

Every flag that is not one of these belongs to ``train.py`` and goes to all runs; the settings of one algorithm
(``--grpo.group 16``) go to those that have it. Several entrants of one algorithm, tuning and claims stand in a settings
file: see docs/compare.md. The same command goes on where it was stopped.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    import runners

    runners.run("compare")

from rich.console import Console

from runners.command_line.interrupts import importing
from runners.command_line.outputs import writing
from runners.comparison.comparison_settings import read_plan
from runners.run_folder.folder import hold


def main() -> None:
    plan, console = read_plan(sys.argv[1:]), Console()
    plan.check(console)
    with importing():
        from runners.comparison.program import compare

    with writing(plan.compare.folder, "; name another with --out"):
        plan.compare.folder.mkdir(parents=True, exist_ok=True)
        lock = hold(plan.compare.folder)
    with lock:
        compare(plan, console)
