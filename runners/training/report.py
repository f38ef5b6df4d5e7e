"""The live table, metrics.jsonl, episodes.jsonl and TensorBoard files of a run."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from agents.tree.episode import Episode, EpisodeId, Fault
from runners.run_folder.journal import Journal
from runners.training.columns import columns_of
from runners.training.credited import Credited
from runners.training.records import outcome_record


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide what a run computes."""
    names = ("turnwise", "torch", "transformers", "peft", "tokenizers", "gymnasium", "numpy", "tantivy", "rapidfuzz")
    result = {"python": platform.python_version()}
    for name in names:
        try:
            result[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            result[name] = "not installed"
    return result


class Report:
    """Writes a run's records and keeps the live table. Use as a context manager.

    ``state`` None begins the records; else they go on from where ``state()`` was taken. The bar counts updates, or
    environment steps where ``env_steps`` of them end the run. ``envs`` are the environments, where there are several.
    """

    def __init__(
        self,
        folder: Path,
        updates: int,
        console: Console,
        state: Mapping[str, Any] | None = None,
        env_steps: int = 0,
        envs: Sequence[str] = (),
    ) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.console, self.columns = console, columns_of(envs)
        self.metrics = Journal(folder / "metrics.jsonl", state["metrics"] if state else None)
        self.episodes = Journal(folder / "episodes.jsonl", state["episodes"] if state else None)
        done = state["update"] if state else 0
        self._last: Mapping[str, float] = {}
        self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=done + 1 if state else None)
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
        )
        self._counted = "environment steps" if env_steps else "updates"
        self._bar = self._progress.add_task(
            self._counted, total=env_steps or updates, completed=0 if env_steps else done
        )
        self._live = Live(self._view(), console=console, refresh_per_second=4, transient=True)

    def state(self, update: int) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"update": update, "metrics": self.metrics.mark(), "episodes": self.episodes.mark()}

    def __enter__(self) -> Report:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.console.is_terminal:
            self._live.stop()
        self.close()

    def close(self) -> None:
        """Closes the records. Safe to call twice."""
        self.metrics.close()
        self.episodes.close()
        self._board.close()

    def update(self, step: int, row: Mapping[str, float]) -> None:
        """Records the numbers of one update."""
        self._last = {**self._last, **row}
        self._write({"kind": "update", "update": step, **row})
        for key, value in row.items():
            self._board.add_scalar(key, value, step)
        self._progress.update(self._bar, completed=row["env_steps"] if self._counted != "updates" else step)
        if self.console.is_terminal:
            self._live.update(self._view())
        else:
            parts = [
                f"{label} {form.format(row[key])}"
                for group in self.columns.values()
                for key, label, form in group
                if key in row
            ]
            self.console.print(f"update {step}: " + ", ".join(parts), soft_wrap=True, highlight=False)

    def evaluation(
        self, step: int, split: str, mode: str, result: Mapping[str, float], seconds: float, env: str = ""
    ) -> None:
        """Records an evaluation; ``seconds`` is the time since the run began, ``env`` the environment where there are
        several."""
        entry = {"update": step, "split": split, "mode": mode, **({"env": env} if env else {}), **result}
        self._write({"kind": "evaluation", **entry, "seconds": seconds})
        self._board.add_scalar(f"{env}/{split}/{mode}" if env else f"{split}/{mode}", result["mean"], step)
        self.console.print(
            f"evaluation after update {step}, {f'{env}, ' if env else ''}{split} tasks, {mode}: success "
            f"{result['mean']:.3f} [{result['low']:.3f}, {result['high']:.3f}] at {seconds:.0f} s",
            soft_wrap=True,
            highlight=False,
        )

    def outcomes(self, step: int, outcomes: Sequence[Episode | Fault], credited: Mapping[EpisodeId, Credited]) -> None:
        """Records what was played: texts, tokens, log-probabilities, rewards and credit of every turn."""
        for outcome in outcomes:
            self.episodes.write(outcome_record(step, outcome, credited))
        self.episodes.flush()

    def _write(self, entry: Mapping[str, Any]) -> None:
        self.metrics.write(entry)
        self.metrics.flush()

    def _view(self) -> Group:
        table = Table.grid(padding=(0, 2), expand=False)
        parts = []
        for group, columns in self.columns.items():
            inner = Table(title=group, show_header=False, box=None, title_justify="left", title_style="bold")
            inner.add_column(style="dim")
            inner.add_column(justify="right")
            for key, label, form in columns:
                value = self._last.get(key)
                inner.add_row(label, "-" if value is None or value != value else form.format(value))
            parts.append(inner)
        table.add_row(*parts)
        return Group(self._progress, table)
