"""Our C with a mistake in it, which a test has to notice."""

import shutil
from pathlib import Path


def changed(source: Path, right: str, wrong: str, folder: Path) -> Path:
    """A copy of ``source`` in ``folder``, with its headers and with ``wrong`` in place of what is ``right``."""
    text = source.read_text("utf-8")
    assert right in text
    for header in source.parent.glob("*.h"):
        shutil.copy(header, folder)
    place = folder / source.name
    place.write_text(text.replace(right, wrong), "utf-8")
    return place
