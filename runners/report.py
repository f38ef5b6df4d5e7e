"""What a run leaves behind and shows: metrics.jsonl, episodes.jsonl, TensorBoard, curve.png and the live table."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from agents.react import Episode
from runners.config import UserError

COLUMNS: dict[str, Sequence[tuple[str, str, str]]] = {
    "episodes": (
        ("success", "success", "{:.3f}"),
        ("reward", "reward", "{:.3f}"),
        ("turns", "turns", "{:.2f}"),
        ("tool_errors", "tool error rate", "{:.3f}"),
        ("invalid", "invalid actions", "{:.3f}"),
        ("truncated", "truncated", "{:.3f}"),
    ),
    "policy": (
        ("entropy", "entropy (nats)", "{:.3f}"),
        ("kl", "KL to start", "{:.4f}"),
        ("clip_fraction", "clip fraction", "{:.3f}"),
        ("zero_variance", "zero-variance groups", "{:.3f}"),
        ("explained_variance", "explained variance", "{:.3f}"),
        ("mismatch", "max |log p rollout - trainer|", "{:.1e}"),
    ),
    "cost": (
        ("packed_share", "packed / raw tokens", "{:.3f}"),
        ("sampled_tokens_per_s", "sampled tokens/s", "{:.0f}"),
        ("seconds_rollout", "rollout s", "{:.2f}"),
        ("seconds_env", "of it waiting for envs s", "{:.2f}"),
        ("seconds_forward", "old and reference log p s", "{:.2f}"),
        ("seconds_update", "update s", "{:.2f}"),
    ),
}


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide what a run computes."""
    names = ("turnwise", "torch", "transformers", "peft", "tokenizers", "gymnasium", "numpy", "tantivy", "rapidfuzz")
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def open_run_folder(folder: Path) -> Path:
    """Makes a fresh run folder. Raises UserError when it exists with contents or cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UserError(f"{folder} is not empty; name another folder with --out")
        probe = folder / ".write"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(f"cannot write the run folder {folder}: {error.strerror}; name another with --out") from None
    return folder


class Report:
    """Writes a run's records and keeps the live table. Use as a context manager."""

    def __init__(self, folder: Path, updates: int, console: Console) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.folder, self.console = folder, console
        self._last: Mapping[str, float] = {}
        self._metrics: TextIO = (folder / "metrics.jsonl").open("a", encoding="utf-8")
        self._episodes: TextIO = (folder / "episodes.jsonl").open("a", encoding="utf-8")
        self._board = SummaryWriter(str(folder / "tensorboard"))
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
        )
        self._bar = self._progress.add_task("updates", total=updates)
        self._live = Live(self._view(), console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Report:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.console.is_terminal:
            self._live.stop()
        self._metrics.close()
        self._episodes.close()
        self._board.close()

    def update(self, step: int, row: Mapping[str, float]) -> None:
        """Records the numbers of one update."""
        self._last = row
        self._write({"kind": "update", "update": step, **row})
        for key, value in row.items():
            self._board.add_scalar(key, value, step)
        self._progress.update(self._bar, completed=step)
        if self.console.is_terminal:
            self._live.update(self._view())
        else:
            parts = [
                f"{label} {form.format(row[key])}"
                for group in COLUMNS.values()
                for key, label, form in group
                if key in row
            ]
            self.console.print(f"update {step}: " + ", ".join(parts), soft_wrap=True, highlight=False)

    def evaluation(self, step: int, split: str, mode: str, result: Mapping[str, float], seconds: float) -> None:
        """Records an evaluation; ``seconds`` is the time since the run began."""
        entry = {"update": step, "split": split, "mode": mode, **result, "seconds": seconds}
        self._write({"kind": "evaluation", **entry})
        self._board.add_scalar(f"{split}/{mode}", result["mean"], step)
        self.console.print(
            f"evaluation after update {step}, {split} tasks, {mode}: success "
            f"{result['mean']:.3f} [{result['low']:.3f}, {result['high']:.3f}] at {seconds:.0f} s",
            soft_wrap=True,
            highlight=False,
        )

    def episodes(self, step: int, episodes: Sequence[Episode]) -> None:
        """Records episodes: texts, tokens, log-probabilities and rewards of every turn."""
        for episode in episodes:
            self._episodes.write(json.dumps(episode_record(step, episode), ensure_ascii=False) + "\n")
        self._episodes.flush()

    def _write(self, entry: Mapping[str, Any]) -> None:
        clean = {k: None if isinstance(v, float) and v != v else v for k, v in entry.items()}
        self._metrics.write(json.dumps(clean, ensure_ascii=False) + "\n")
        self._metrics.flush()

    def _view(self) -> Group:
        table = Table.grid(padding=(0, 2), expand=False)
        parts = []
        for group, columns in COLUMNS.items():
            inner = Table(title=group, show_header=False, box=None, title_justify="left", title_style="bold")
            inner.add_column(style="dim")
            inner.add_column(justify="right")
            for key, label, form in columns:
                value = self._last.get(key)
                inner.add_row(label, "-" if value is None or value != value else form.format(value))
            parts.append(inner)
        table.add_row(*parts)
        return Group(self._progress, table)


def episode_record(step: int, episode: Episode) -> dict[str, Any]:
    """One line of episodes.jsonl: token ids are the record, texts are for people."""
    return {
        "update": step,
        "task": episode.job.task.id,
        "sample": episode.job.sample,
        "language": episode.job.task.language,
        "level": episode.job.task.level,
        "success": episode.success,
        "reward": episode.reward,
        "metrics": episode.metrics,
        "system": episode.prompt[0],
        "user": episode.prompt[1],
        "prompt_tokens": episode.root.tokens,
        "turns": [
            {
                "action": text,
                "observation": seen,
                "tokens": action.tokens,
                "logp": [round(x, 6) for x in action.logp],
                "entropy": [round(x, 6) for x in action.entropy],
                "reward": action.reward,
                "version": action.version,
                "observation_tokens": state.tokens,
                "terminated": state.terminated,
                "truncated": state.truncated,
            }
            for (action, state), (text, seen) in zip(episode.turns, episode.texts, strict=True)
        ],
    }


def draw_curve(folder: Path, title: str) -> Path:
    """Draws the success of the training batches and of the evaluations from metrics.jsonl into curve.png."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    entries = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    updates = [e for e in entries if e["kind"] == "update"]
    checks = [e for e in entries if e["kind"] == "evaluation"]
    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot(
        [e["seconds"] for e in updates],
        [e["success"] for e in updates],
        lw=1,
        color="#9aa5b1",
        label="training batches, sampled",
    )
    for (split, mode), color in zip(
        dict.fromkeys((e["split"], e["mode"]) for e in checks),
        ("#1f77b4", "#d62728", "#2ca02c", "#ff7f0e"),
        strict=False,
    ):
        mine = [e for e in checks if (e["split"], e["mode"]) == (split, mode)]
        mean = [e["mean"] for e in mine]
        error = [[e["mean"] - e["low"] for e in mine], [e["high"] - e["mean"] for e in mine]]
        axes.errorbar(
            [e["seconds"] for e in mine],
            mean,
            yerr=error,
            marker="o",
            ms=3.5,
            lw=1.5 if split == "valid" else 0,  # before and after: nothing is known about what lies between
            elinewidth=1.5,
            capsize=3,
            color=color,
            label=f"{split} tasks, {mode}",
        )
    axes.set(xlabel="seconds since the run began", ylabel="success", ylim=(0, 1), title=title)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", frameon=False)
    path = folder / "curve.png"
    figure.savefig(path, dpi=150)
    return path
