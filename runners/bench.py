"""Measures one agent on a suite of fixed tasks.

turnwise bench --suite third-party-1 --agent random
turnwise bench --suite wiki-1 --model RUN --out row.json
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    import runners

    runners.run("bench")

from dataclasses import replace

from rich.console import Console

from runners.benching.settings import Bench, check, parts_of
from runners.benching.suites import SUITES
from runners.benching.table import show_suites
from runners.command_line.errors import UserError
from runners.command_line.interrupts import importing
from runners.command_line.parse import parse


def main() -> None:
    bench, parts = parse(Bench, parts_of)
    if bench.list:
        if replace(bench, list=False, tasks=None) != Bench():
            raise UserError("--list shows the suites and plays nothing: leave out the other flags")
        return show_suites([*SUITES.values()], Console())
    check(bench, parts)
    with importing():
        from runners.benching.program import run

    run(bench, parts)
