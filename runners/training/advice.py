"""Advice from the numbers of an update, each piece printed once."""

from collections.abc import Iterator, Mapping

from rich.console import Console

from algorithms.formulas.mismatch import sampling_warning
from runners.settings.run_settings import Train


class Advisor:
    """Reads the row of every update."""

    def __init__(self, train: Train, console: Console) -> None:
        self.train, self.console = train, console
        self.given: set[str] = set()

    def look_at(self, row: Mapping[str, float]) -> None:
        for about, advice in self.advice(row):
            if about not in self.given:
                self.given.add(about)
                self.console.print(advice, soft_wrap=True)

    def advice(self, row: Mapping[str, float]) -> Iterator[tuple[str, str]]:
        """(subject, advice) pairs; the advice may quote numbers of this update."""
        if row.get("clip_fraction", 0.0) > 0.4:
            # Most of what such large steps teach is clipped away.
            yield (
                "clipping",
                f"[bold]more than 40 % of the ratios were clipped:[/] lower --lr, or set --{self.train.algo}.ratio to "
                "one that grows less with the length of a turn (token, or a mean)",
            )
        truncated = "mismatch_kept_mass" in row
        if truncated and (line := sampling_warning(self.train.top_p, self.train.top_k, dict(row))):
            yield "sampling", line
        if row.get("judge_parsed", 1.0) < 0.5:
            yield (
                "judge",
                "[bold]more than half of the judged episodes got no labels[/] (judge_unparsed) and learn from their "
                "outcome alone: see docs/judges.md",
            )
        if self.train.exact and row["seconds_env"] > 0.5 * row["seconds_rollout"]:
            yield (
                "waiting",
                "[bold]the engine waits for environments more than half of the time:[/] raise --envs.processes, or set "
                "--no-exact: slow environments then delay no others, but the run's last bits depend on timing",
            )
