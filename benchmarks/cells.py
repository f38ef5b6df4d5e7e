"""The finished parts of a long study, one file each, so that a stopped study resumes.

Invariant: a cell is there whole or not at all, and all cells of a folder were measured with the same settings.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from runners.command_line.errors import UserError
from runners.command_line.plain import dump_json, plain
from runners.run_folder.folder import write_whole


class Cells:
    """What was measured so far: a file for each part. ``identity`` is all that it depends on.

    Raises UserError when the folder holds what was measured otherwise.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any]) -> None:
        self.folder, asked = folder, json.loads(dump_json(identity))
        folder.mkdir(parents=True, exist_ok=True)
        place = folder / "settings.json"
        if place.is_file() and (there := json.loads(place.read_text("utf-8"))) != asked:
            other = ", ".join(sorted(k for k in {*there, *asked} if there.get(k) != asked.get(k)))
            raise UserError(f"{folder} was measured with another {other}: name another folder with --cells")
        write_whole(place, dump_json(asked))

    def get(self, name: str, measure: Callable[[], Any]) -> Any:
        """The cell ``name`` as plain values, measured first where it is not there."""
        place = self.folder / f"{name}.json"
        if not place.is_file():
            write_whole(place, json.dumps(plain(measure())))
        return json.loads(place.read_text("utf-8"))
