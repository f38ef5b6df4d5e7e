"""Writes one HTML file that shows a run: its curves, its settings, and episodes turn by turn, token by token.

    turnwise view runs/wiki-selfac-0-…

The file needs no server and no network. A run records thousands of episodes: a choice of them, spread over the run, is
put into the file, always the whole group that a task got in one update.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    import runners

    runners.run("view")

from dataclasses import dataclass

import tyro

from agent_envs.ranges import check_ranges
from runners.command_line.parse import parse
from runners.viewer.build import EPISODES, PAGE, build, write_page


@dataclass(frozen=True)
class View:
    """Write one HTML file that shows a run."""

    run: tyro.conf.Positional[Path] = Path()
    """Run folder."""
    out: Path | None = None
    """File to write; by default view.html in the run folder."""
    episodes: int = EPISODES
    """About how many episodes to put into it, spread evenly over the run; groups are kept whole."""

    def __post_init__(self) -> None:
        check_ranges(self, episodes=1)


def main() -> None:
    view, _ = parse(View)
    out = view.out or view.run / PAGE
    page, chosen = build(view.run, view.episodes)
    write_page(page, out, follow=view.out is not None)
    print(f"{chosen}\n{out} ({out.stat().st_size / 1e6:.1f} MB)")
