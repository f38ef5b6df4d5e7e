"""Tiny models that come with the package, so that a first run need not wait until one is made.

A folder of ``packaged/`` is a model as `ensure_tiny` makes it, its weights in 16 bits. It serves where everything that
it was made from is as it was, but for the code and the version of torch; else, and with ``--pretrain.fresh``, a model
is made. `scripts/package_tiny.py` makes them again.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runners.command_line.plain import dump_json

PLACE = Path(__file__).parent / "packaged"
MADE_FROM = "made_from.json"
_CODE = ("code", "torch")
"""Keys of that file that are no reason to make a model again: others' processors round in other ways, too."""


def packaged(name: str, made_from: Mapping[str, Any]) -> Path | None:
    """The folder of the model called ``name`` (its environments) that was made from this; None where there is none."""
    file = PLACE / name / MADE_FROM
    if not file.is_file():
        return None
    then = {key: value for key, value in json.loads(file.read_text("utf-8")).items() if key not in _CODE}
    return file.parent if then == json.loads(dump_json(made_from)) else None
