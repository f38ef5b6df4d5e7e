"""Pictures of the page that ``runners/view.py`` makes of a run.

    python tests/runners/view_screenshots.py RUN docs/ [NAME]

writes docs/view-NAME-curves.png, -tree.png and -tokens.png; NAME is the run's algorithm unless it is given. The tree is
that of the last episode group in which some episodes succeeded and some did not, or else of the longest
episode that fits.
"""

import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    sys.path.append(str(Path(__file__).resolve().parent))

from browser import Browser, chromium

from runners.viewer.build import MAX_BYTES, build
from runners.viewer.merge import merge
from runners.viewer.read import choose, index_episodes, load, read_run

EPISODES = 200


def best_row(run: Path) -> int:
    """Number on the page of the episode that is worth a picture."""
    index = index_episodes(run / "episodes.jsonl")
    groups = load(index, choose(index, EPISODES, MAX_BYTES))
    best, best_rank, number = 0, (-1, -1), 0
    for group in groups:
        mixed = len({episode.success for episode in group}) > 1
        size = len(merge(group))
        fits = 24 if len(group) > 1 else 6  # states of a tree or a chain that a picture can show
        rank = (int(mixed), size if size <= fits else 0)
        if rank > best_rank:
            best, best_rank = number, rank
        number += len(group)
    return best


def pictures(run: Path, out: Path, name: str) -> list[Path]:
    """Writes the pictures and returns their files."""
    program = chromium()
    if program is None:
        sys.exit("error: no Chromium found: install the package chromium")
    made = []
    with tempfile.TemporaryDirectory() as folder, Browser(program) as browser:
        page = Path(folder) / "view.html"
        page.write_text(build(run, EPISODES)[0], "utf-8")
        row = best_row(run)

        def take(what: str) -> None:
            file = out / f"view-{name}-{what}.png"
            file.write_bytes(browser.screenshot())
            made.append(file)

        browser.show(1280, 860)
        browser.open(page)
        take("curves")
        browser.open(page, f"#episode-{row}")
        take("tree")
        browser.show(1280, 860, dark=True)
        browser.press("t")
        browser("document.querySelector('.turns').scrollIntoView()")
        heat = "Array.from(document.querySelectorAll('.token.trained'))"
        hot = f"{heat}.sort((a, b) => b.style.getPropertyValue('--heat') - a.style.getPropertyValue('--heat'))[0]"
        browser(f"{hot}.id = 'hot'")
        browser.click("#hot")
        take("tokens")
        assert not browser.problems, browser.problems
    return made


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 4:
        sys.exit(f"usage: python {sys.argv[0]} RUN FOLDER [NAME]")
    folder = Path(sys.argv[1])
    algorithm = dict(read_run(folder).settings).get("algo", "run")
    for file in pictures(folder, Path(sys.argv[2]), sys.argv[3] if len(sys.argv) == 4 else algorithm):
        print(f"{file} ({file.stat().st_size / 1e3:.0f} kB)")
