"""The phases of an update and the clock that sees what no phase names, so that they add up to the whole."""

from collections.abc import Mapping
from time import monotonic, process_time

PHASES = (
    ("seconds_rollout", "rollout s", "{:.2f}"),
    ("seconds_judge", "judge s", "{:.2f}"),
    ("seconds_continuations", "continuations s", "{:.2f}"),
    ("seconds_forward", "old and reference log p s", "{:.2f}"),
    ("seconds_update", "update s", "{:.2f}"),
    ("seconds_other", "records and checkpoint s", "{:.2f}"),
)
"""(name, label, format) of every phase, in order."""


class Clock:
    """Measures the last phase: what `PHASES` names no other way, the checkpoint of the update before included."""

    def __init__(self) -> None:
        self.began = self.row = monotonic()
        self.processor_began = process_time()
        self.after = 0.0
        """Seconds of the last update after its row was written."""

    def begin(self) -> None:
        """At the begin of an update."""
        self.began = monotonic()
        self.processor_began = process_time()

    def processor(self) -> float:
        """Processor seconds of this process since then, of all its threads."""
        return process_time() - self.processor_began

    def other(self, row: Mapping[str, float]) -> float:
        """At the row of an update, which holds the other phases."""
        self.row = monotonic()
        return max(0.0, self.after + self.row - self.began - sum(row.get(name, 0.0) for name, *_ in PHASES))

    def end(self) -> None:
        """At the end of an update."""
        self.after = monotonic() - self.row
