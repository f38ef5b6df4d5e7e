"""Splits of texts by hash, and the tasks of a source that comes row by row.

Invariant: no text is in two splits. One that stands twice belongs to test before valid before train; where a source
says nothing, the text's own hash decides.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from agent_envs.core import SPLITS, Task
from agent_envs.rows import Row
from agent_envs.scoring import is_cjk

Found = TypeVar("Found")
_PLACES = ("valid", "test", "train", "train", "train")
MORE_TESTS = ("valid", "test", "test", "train", "train", "train", "train")
"""Places for sources of which more is needed to test."""


def hashed_split(text: str, places: Sequence[str] = _PLACES) -> str:
    """The split that a text belongs to, by its own hash; one of ``places``, three in five of which are train."""
    return places[Random(text).randrange(len(places))]


@dataclass(frozen=True)
class Wanted:
    """Which tasks of a source are taken."""

    name: str
    """What their ids begin with."""
    languages: tuple[str, ...]
    train_tasks: int
    held_out_tasks: int
    """At most this many of valid, and as many of test."""
    fill: bool = False
    """Splits that the source does not have are taken from its training part."""


def tasks_by_split(
    wanted: Wanted,
    parts: Mapping[str, Iterable[tuple[str, Row]]],
    read: Callable[[Row, str], tuple[str, Found]],
    make: Callable[[str, str, str, Found], Task | None],
    split_by: Callable[[str, Found], str] = lambda text, _: text,
) -> dict[str, tuple[Task, ...]]:
    """The tasks of each split, in the order of their rows.

    ``parts``: split → (where it stands, row) of each row; "" is a part that is for all splits.
    ``read``: row and where it stands → its text, and what was made of it; may raise SettingsError.
    ``split_by``: text and what was made of it → what decides by its hash: rows of which it is equal stay together.
    ``make``: id, split, language and what was read → the task; None where it cannot be used.
    """
    tasks: dict[str, list[Task]] = {split: [] for split in SPLITS}
    owner: dict[str, str] = {}
    """The split of a text, and of what it is kept together by."""
    # What stands in two parts belongs to the one that must not be trained on.
    for part in sorted(parts, key=("test", "valid", "train", "").index):
        for where, row in parts[part]:
            text, found = read(row, where)
            key = split_by(text, found)
            hashed = hashed_split(key)
            split = hashed if not part or (wanted.fill and part == "train" and hashed not in parts) else part
            room = wanted.train_tasks if split == "train" else wanted.held_out_tasks
            language = "zh" if any(map(is_cjk, text)) else "en"
            known = f"text {text}" in owner
            # A row for which there is no room is not left to another split.
            if {owner.setdefault(f"key {key}", split), owner.setdefault(f"text {text}", split)} != {split} or known:
                continue
            if language not in wanted.languages or len(tasks[split]) == room:
                continue
            task = make(f"{wanted.name}-{split}-{len(tasks[split])}", split, language, found)
            if task is not None:
                tasks[split].append(task)
    return {split: tuple(chosen) for split, chosen in tasks.items()}
