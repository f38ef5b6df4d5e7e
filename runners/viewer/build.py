"""The page of a run, out of its folder, which may be anybody's."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runners.command_line.errors import UserError
from runners.command_line.outputs import writing
from runners.training.columns import COLUMNS
from runners.viewer.merge import merge
from runners.viewer.page import render
from runners.viewer.pieces import read_pieces
from runners.viewer.read import Group, Index, RunRecords, choose, index_episodes, load, read_run
from runners.viewer.records import Episode

PAGE = "view.html"
"""The page's name in a run folder."""
EPISODES = 200
"""About how many episodes a page holds by default."""
MAX_BYTES = 8_000_000
"""Recorded bytes that are put into a page at most, so that it opens at once."""


def build(folder: Path, limit: int) -> tuple[str, str]:
    """(the page, what was chosen in one sentence). Raises UserError where the folder is not a run or is damaged."""
    try:
        run = read_run(folder)
        return page_of(folder.resolve().name, run, index_episodes(folder / "episodes.jsonl"), limit)
    except RecursionError:
        raise UserError(f"{folder} holds a record that is nested too deeply to be shown") from None


def page_of(name: str, run: RunRecords, index: Index, limit: int = EPISODES) -> tuple[str, str]:
    """The same of what was read: about ``limit`` of the episodes in ``index``. Raises UserError."""
    groups = choose(index, limit, MAX_BYTES)
    chosen = describe(index, groups, full=len(groups) < len(choose(index, limit, sys.maxsize)))
    return render(name, page_data(name, run, load(index, groups), chosen)), chosen


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


def write_view(folder: Path) -> Path:
    """The page of a run of one's own, in its folder. Raises UserError."""
    page, _ = build(folder, EPISODES)
    write_page(page, folder / PAGE, follow=False)
    return folder / PAGE


def write_page(page: str, out: Path, *, follow: bool) -> None:
    """Writes the page; unless ``follow``, never through a symbolic link: the folder may be somebody else's.

    Raises UserError.
    """
    if not follow and out.is_symlink():
        raise UserError(f"{out} is a symbolic link, which is not written through; name a file with --out")
    with writing(out, "; name another file with --out"):
        out.write_text(page, "utf-8")
