"""Our C with a mistake in it, which a test has to notice."""

from pathlib import Path


def changed(source: Path, right: str, wrong: str, folder: Path) -> Path:
    """A copy of ``source`` in ``folder``, with its headers; in one of them ``wrong`` stands in place of ``right``."""
    found = 0
    for path in (source, *source.parent.glob("*.h")):
        text = path.read_text("utf-8")
        found += right in text
        (folder / path.name).write_text(text.replace(right, wrong), "utf-8")
    assert found == 1
    return folder / source.name
