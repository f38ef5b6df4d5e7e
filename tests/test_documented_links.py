"""Links between the pages of the documentation lead to files and headings that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    heads = (re.sub(r"[^\w\- ]", "", head.strip().lower()) for head in re.findall(r"^#+ (.*)$", text, re.MULTILINE))
    return {head.replace(" ", "-") for head in heads}


def dead_links(page: Path, text: str) -> list[str]:
    result = []
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            result.append(link)
    return result


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert dead_links(page, page.read_text("utf-8")) == []


def test_dead_links_are_found() -> None:
    text = "[a](docs/runs.md#small-budgets) [b](docs/no-such.md) [c](docs/runs.md#no-such) [d](https://example.com)"
    assert dead_links(ROOT / "README.md", text) == ["docs/no-such.md", "docs/runs.md#no-such"]


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    assert [page.name for page in PAGES[2:] if page.name != "README.md" and f"({page.name})" not in index] == []
