"""Puts the page together: one file that needs nothing else and sends nothing anywhere.

Invariant: what a run recorded is data. It is embedded as JSON in a block that browsers do not run, with every character
escaped that could end the block, and the page's scripts put it on the screen as text only. The policy in its head
allows the one script and the one style sheet that stand in it, by hash, and nothing from outside.
"""

import hashlib
import html
import re
from base64 import b64encode
from importlib.resources import files
from typing import Any

from runners.command_line.plain import dump_json

SCRIPTS = ("dom.js", "plot.js", "curves.js", "tokens.js", "tree.js", "turns.js", "table.js", "main.js")
_UNSAFE = re.compile("[<>&\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def render(title: str, data: Any) -> str:
    """The whole page; ``data`` is plain values, with dataclasses."""
    style = _read("style.css")
    script = '"use strict";\n(() => {\n' + "\n".join(map(_read, SCRIPTS)) + "\n})();\n"
    parts = {
        "policy": f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'",
        "title": html.escape(_text(title)),
        "style": style,
        "data": embed(data),
        "script": script,
    }
    # In one pass: what is put in is never searched for further places.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _read("template.html"))


def embed(data: Any) -> str:
    """JSON that cannot leave the element it stands in, nor change how the file around it is displayed."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", dump_json(data, indent=None).strip())


def _text(text: str) -> str:
    return _UNSAFE.sub(lambda found: found[0] if found[0] in "<>&" else "\ufffd", text)


def _hash(content: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _read(name: str) -> str:
    return files("runners.viewer").joinpath(name).read_text("utf-8")
