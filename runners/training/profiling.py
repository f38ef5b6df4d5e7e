"""Where the time of an update went: a trace of every operation of this process, and a table.

The traced update is the second of the process, because the first one warms up; where only one is left it is that one.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from rich.console import Console
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile

from runners.training.phases import PHASES

FOLDER, TRACE, TABLE = "profile", "trace.json.gz", "table.txt"
ROWS = 30
"""Operations in the table: those that took longest themselves."""
Row = Mapping[str, float]


class Profiling:
    """Traces one update of a run into ``folder``/profile."""

    def __init__(self, folder: Path, updates_left: int, console: Console) -> None:
        self.folder, self.console = folder / FOLDER, console
        self.before = min(1, updates_left - 1)
        """Updates until the traced one; below 0 where it has been."""

    def run(self, update: Callable[[], Row]) -> None:
        """Runs an update, which returns its numbers, and traces it where it is the one. Raises OSError."""
        self.before -= 1
        if self.before != -1:
            update()
            return
        cuda = torch.cuda.is_available()
        kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
        # Passes are computed in several threads (`agents.tree.threads`).
        with profile(activities=kinds, experimental_config=_ExperimentalConfig(profile_all_threads=True)) as profiler:
            row = update()
        self.folder.mkdir(exist_ok=True)
        profiler.export_chrome_trace(str(self.folder / TRACE))
        by = "self_cuda_time_total" if cuda else "self_cpu_time_total"
        operations = profiler.key_averages().table(sort_by=by, row_limit=ROWS, max_name_column_width=60)
        table = self.folder / TABLE
        table.write_text(f"{phases(row)}\n\noperations of the learning process\n{operations}\n", "utf-8")
        self.console.print(f"profile: {table}, trace: {self.folder / TRACE}", soft_wrap=True, highlight=False)


def phases(row: Row) -> str:
    """The phases of an update with their seconds and shares, which add up to the whole."""
    spent = {label.removesuffix(" s"): row[name] for name, label, _ in PHASES if name in row}
    whole = sum(spent.values())
    lines = [f"{label:<28}{seconds:9.3f} s{seconds / whole:8.1%}" for label, seconds in spent.items()]
    return "\n".join([*lines, f"{'the whole update':<28}{whole:9.3f} s"])
