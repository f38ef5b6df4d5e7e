"""Writes one HTML file that shows a run: its curves, its settings, and episodes turn by turn, token by token.

    turnwise view runs/wiki-selfac-0-…

The file needs no server and no network. A run records thousands of episodes: a choice of them, spread over the run, is
put into the file, always the whole group that a task got in one update.
"""

import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
import runners

if __name__ == "__main__":
    runners.check_install()

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tyro

from agent_envs.ranges import check_ranges
from runners.command_line.errors import UserError, run_program
from runners.command_line.parse import parse
from runners.training.columns import COLUMNS
from runners.viewer.merge import merge
from runners.viewer.page import render
from runners.viewer.pieces import read_pieces
from runners.viewer.read import Group, Index, RunRecords, choose, index_episodes, load, read_run
from runners.viewer.records import Episode

MAX_BYTES = 8_000_000
"""Recorded bytes that are put into a page at most, so that it opens at once."""


@dataclass(frozen=True)
class View:
    """Write one HTML file that shows a run."""

    run: tyro.conf.Positional[Path] = Path()
    """Run folder."""
    out: Path | None = None
    """File to write; by default view.html in the run folder."""
    episodes: int = 200
    """About how many episodes to put into it, spread evenly over the run; groups are kept whole."""

    def __post_init__(self) -> None:
        check_ranges(self, episodes=1)


def build(folder: Path, limit: int) -> tuple[str, str]:
    """(the page, what was chosen in one sentence). Raises UserError where the folder is not a run or is damaged."""
    run = read_run(folder)
    index = index_episodes(folder / "episodes.jsonl")
    groups = choose(index, limit, MAX_BYTES)
    episodes = load(index, groups)
    chosen = describe(index, groups, full=len(groups) < len(choose(index, limit, sys.maxsize)))
    name = folder.resolve().name
    return render(name, page_data(name, run, episodes, chosen)), chosen


def page_data(name: str, run: RunRecords, groups: Sequence[Sequence[Episode]], chosen: str) -> dict[str, Any]:
    """What the page's scripts read."""
    pieces = read_pieces(run.source, {i for group in groups for episode in group for i in _ids(episode)})
    return {
        "name": name,
        "chosen": chosen,
        "settings": run.settings,
        "notes": run.notes,
        "updates": run.updates,
        "evaluations": run.evaluations,
        "columns": [[key, label] for columns in COLUMNS.values() for key, label, _ in columns],
        "pieces": pieces,
        "groups": [{"episodes": group, "tree": merge(group)} for group in groups],
    }


def describe(index: Index, groups: Sequence[Group], *, full: bool) -> str:
    """Says which episodes a page holds; ``full`` when it has no room for more."""
    some, every = sum(len(group.places) for group in groups), index.episodes
    updates = sorted({group.update for group in groups})
    if not every:
        text = "No episode is recorded"
    elif some == every:
        text = f"All {every:,} recorded episodes"
    else:
        those = ", ".join(map(str, updates)) if len(updates) <= 12 else f"{updates[0]} to {updates[-1]}"
        text = (
            f"{some:,} of {every:,} recorded episodes, whole groups spread evenly over update{'s'[: len(updates) > 1]} "
        )
        text += f"{those} ({len(updates)} of {len(index.updates)}); " + (
            "a page has no room for more" if full else "--episodes N takes more or fewer"
        )
    return text + ("; the last line, not finished yet, is left out" if index.unfinished else "") + "."


def _ids(episode: Episode) -> set[int]:
    result = set(episode.prompt_tokens)
    return result.union(*(t.tokens for t in episode.turns or ()), *(t.observation_tokens for t in episode.turns or ()))


def main() -> None:
    view, _ = parse(View, lambda _: {}, about=View.__doc__ or "")
    out = view.out or view.run / "view.html"
    page, chosen = build(view.run, view.episodes)
    try:
        out.write_text(page, "utf-8")
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}; name another file with --out") from None
    print(f"{chosen}\n{out} ({out.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    run_program(main)
