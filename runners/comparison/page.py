"""The report of a comparison as one HTML page, made from its Markdown.

Invariant: the page runs no script and fetches nothing; HTML in a text is shown as text.
"""

from base64 import b64encode
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def page(markdown: str, folder: Path) -> str:
    """The page; its pictures are SVG files in ``folder``."""

    def image(_: Any, tokens: Any, at: int, *__: Any) -> str:
        data = b64encode((folder / tokens[at].attrs["src"]).read_bytes()).decode()
        caption = escape(tokens[at].content)
        return f"<span><img src='data:image/svg+xml;base64,{data}' alt='{caption}'><small>{caption}</small></span>"

    text = MarkdownIt("commonmark", {"html": False}).enable("table")
    text.add_render_rule("image", image)
    style = files("runners.comparison").joinpath("page.css").read_text("utf-8")
    return PAGE.format(title="Comparison", style=style, body=text.render(markdown))
