"""Writes a package with an environment in it: complete, tested, and trained with no edit."""

import keyword
import re
from pathlib import Path
from string import Template

from runners.command_line.errors import UserError
from runners.command_line.outputs import writing
from runners.run_folder.folder import fresh_folder

TEMPLATE = Path(__file__).parent / "template"
PLACES = {
    "pyproject.toml.txt": "pyproject.toml",
    "README.md.txt": "README.md",
    "init.py.txt": "turnwise_$name/__init__.py",
    "config.py.txt": "turnwise_$name/config.py",
    "tasks.py.txt": "turnwise_$name/tasks.py",
    "reward.py.txt": "turnwise_$name/reward.py",
    "env.py.txt": "turnwise_$name/env.py",
    "test.py.txt": "tests/test_$name.py",
}
"""File of the template → where it goes."""


def check_name(name: str, taken: set[str], reserved: set[str]) -> None:
    """Raises UserError for what cannot name an environment, its flags and its package."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,40}", name) or keyword.iskeyword(name) or name.endswith("_"):
        raise UserError(f"{name!r} cannot be a name: take small letters, digits and _, as in my_env")
    if name in taken:
        raise UserError(f"there is an environment {name} already: take another name")
    if name in reserved:
        raise UserError(f"{name} names other settings or another package: take another name")


def write_env(name: str, out: Path) -> list[Path]:
    """Writes the package into ``out``, a new or empty folder; its files. Raises UserError, and leaves nothing then."""
    camel = "".join(map(str.capitalize, name.removesuffix("_env").split("_")))  # the class is called …Env anyway
    words = {"name": name, "dashed": name.replace("_", "-"), "Name": camel}
    written = []
    with writing(out), fresh_folder(out) as folder:
        for source, place in PLACES.items():
            file = folder / Template(place).substitute(words)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(Template((TEMPLATE / source).read_text("utf-8")).substitute(words), "utf-8")
            written.append(out / file.relative_to(folder))
    return written
