"""Reads a run folder for the viewer.

Invariant: whole groups are kept (all recorded episodes of one task in one update), and a file of any size is read with
memory for the chosen groups only: a first pass notes where each line lies, a second one reads what was chosen. A last
line without its line break is still being written and is left out; any other damage is a UserError that names the line.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from runners.command_line.errors import UserError
from runners.command_line.parse import read_file
from runners.viewer.records import Episode, damage, episode_of, numbers, whole
from runners.workers.states import WORKER_LOG

WORKERS, STATES = 100, 12
"""Workers that are shown at most, and states of each."""
SPREAD = 5
"""Updates that are shown at least, where the run has as many."""


@dataclass(frozen=True)
class RunRecords:
    """Everything of a run but its episodes."""

    folder: Path
    settings: Sequence[tuple[str, str]]
    """(dotted name, value as text), in the order of config.yaml."""
    notes: Sequence[tuple[str, str]]
    """The same of versions.json, base.json and workers.jsonl."""
    updates: Sequence[Mapping[str, Any]]
    evaluations: Sequence[Mapping[str, Any]]
    source: str | None
    """Folder or hub name of the base model, whose tokenizer made the ids."""


@dataclass
class Group:
    """Where the recorded episodes of one task in one update lie in the file."""

    update: int
    task: str
    """Its id, after the name of its environment where the run had several."""
    places: list[tuple[int, int]] = field(default_factory=list)
    """(number of the line, offset in bytes)."""
    size: int = 0
    """Bytes of these lines."""


@dataclass(frozen=True)
class Index:
    """All groups of a file, in the order of their first lines."""

    file: Path
    groups: Sequence[Group]
    unfinished: bool = False
    """Whether the file ends in the middle of a line."""

    @property
    def episodes(self) -> int:
        return sum(len(group.places) for group in self.groups)

    @property
    def updates(self) -> list[int]:
        return sorted({group.update for group in self.groups})


def read_run(folder: Path) -> RunRecords:
    """Settings and numbers of a run. Raises UserError where ``folder`` is none, or a line is damaged."""
    for name in ("config.yaml", "metrics.jsonl"):
        if not (folder / name).is_file():
            raise UserError(f"{folder} is not a run folder: it has no {name}; name a folder that train.py wrote")
    rows = [(number, row) for number, _, _, row in _lines(folder / "metrics.jsonl") if row is not None]
    for number, row in rows:
        if not whole(row.get("update")):
            damaged(folder / "metrics.jsonl", number, "it has no 'update'")
    base = _json(folder / "base.json")
    source = base.get("source")
    return RunRecords(
        folder,
        flat(read_file(folder / "config.yaml")),
        flat({"versions": _json(folder / "versions.json"), "base": base, "workers": _workers(folder / WORKER_LOG)}),
        [numbers(row) for _, row in rows if row.get("kind") == "update"],
        [
            numbers(row) | {key: str(row.get(key) or "") for key in ("env", "split", "mode")}
            for _, row in rows
            if row.get("kind") == "evaluation"
        ],
        source if isinstance(source, str) else None,
    )


def index_episodes(file: Path) -> Index:
    """Notes every line of episodes.jsonl; an absent file has no groups. Raises UserError at a damaged line."""
    groups: dict[tuple[int, str], Group] = {}
    unfinished = False
    for number, offset, size, row in _lines(file) if file.is_file() else ():
        if row is None:
            unfinished = True
            continue
        update, task = row.get("update"), row.get("task")
        if not isinstance(update, int) or not whole(update) or not isinstance(task, str):
            damaged(file, number, "it has no 'update' or no 'task'")
        whose = f"{row['env']}/{task}" if row.get("env") else task
        group = groups.setdefault((update, whose), Group(update, whose))
        group.places.append((number, offset))
        group.size += size
    return Index(file, list(groups.values()), unfinished)


def choose(index: Index, limit: int, max_bytes: int) -> list[Group]:
    """Whole groups, about ``limit`` episodes and at most ``max_bytes``, spread evenly over updates and within each.

    The first and the last update are always among them; at least one group is chosen where there is one.
    """
    chosen = _spread(index, limit)
    while len(chosen) > 1 and sum(group.size for group in chosen) > max_bytes:
        limit = max(1, min(limit, sum(len(group.places) for group in chosen)) * 4 // 5)
        chosen = _spread(index, limit)
    return chosen


def _spread(index: Index, limit: int) -> list[Group]:
    if index.episodes <= limit:
        return list(index.groups)
    updates = index.updates
    shown = max(min(SPREAD, limit), limit * len(updates) // index.episodes)
    picked = evenly(updates, shown)
    of_update: dict[int, list[Group]] = {update: [] for update in updates}
    for group in index.groups:
        of_update[group.update].append(group)
    chosen: list[Group] = []
    for update in picked:
        mine = of_update[update]
        size = sum(len(group.places) for group in mine) / len(mine)
        chosen += evenly(mine, max(1, int(limit / len(picked) / size)))
    return chosen


def evenly(items: Sequence[Any], n: int) -> list[Any]:
    """``n`` of the items, the first and the last among them; the last one alone for 1, all of them if n is larger."""
    if n >= len(items):
        return list(items)
    if n == 1:
        return [items[-1]]
    return [items[round(i * (len(items) - 1) / (n - 1))] for i in range(n)]


def load(index: Index, groups: Sequence[Group]) -> list[list[Episode]]:
    """The episodes of the chosen groups. Raises UserError at a damaged line."""
    if not groups:
        return []
    result = []
    with index.file.open("rb") as file:
        for group in groups:
            episodes = []
            for number, offset in group.places:
                file.seek(offset)
                row = json.loads(file.readline(), parse_constant=_no_number)
                if why := damage(row):
                    damaged(index.file, number, why)
                episodes.append(episode_of(row))
            result.append(episodes)
    return result


def _lines(file: Path) -> Iterator[tuple[int, int, int, dict[str, Any] | None]]:
    """(number, offset, size, content) of every line; the content of an unfinished last line is None."""
    offset = 0
    with file.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            try:
                row = json.loads(line, parse_constant=_no_number)
            except ValueError as error:
                if not line.endswith(b"\n"):
                    yield number, offset, len(line), None
                    return
                damaged(file, number, str(error))
            if not isinstance(row, dict):
                damaged(file, number, "it is not a JSON object")
            yield number, offset, len(line), row
            offset += len(line)


def damaged(file: Path, number: int, why: str) -> NoReturn:
    """Raises the UserError for a line that cannot be read."""
    raise UserError(f"{file}: line {number} is damaged ({why}): remove that line, or restore the file")


def _no_number(name: str) -> None:
    """NaN and Infinity are not JSON; both are read as None."""


def _json(file: Path) -> dict[str, Any]:
    """A file that only adds information: absent or unreadable, it says nothing."""
    try:
        values = json.loads(file.read_text("utf-8"), parse_constant=_no_number)
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def _workers(file: Path) -> dict[str, str]:
    """The last states of each worker, by its number; nothing where the file is absent or damaged."""
    try:
        rows = [row for _, _, _, row in _lines(file) if row is not None] if file.is_file() else []
    except UserError:
        return {"record": "it is damaged"}
    known = [row for row in rows if whole(row.get("worker")) and whole(row.get("update"))]
    states: dict[int, list[str]] = {}
    for row in known:
        why = f" ({row['why']})" if row.get("why") else ""
        states.setdefault(row["worker"], []).append(f"{row.get('state')}{why} at update {row['update']}")
    return {
        f"worker {number}": f"{'… ' if len(mine) > STATES else ''}{', '.join(mine[-STATES:])}"
        for number, mine in sorted(states.items())[:WORKERS]
    }


def flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as (dotted name, value as text)."""
    out: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            out += flat(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            out.append((f"{prefix}{name}", ", ".join(map(_scalar, value))))
        else:
            out.append((f"{prefix}{name}", _scalar(value)))
    return out


def _scalar(value: Any) -> str:
    if value is None:
        return "–"
    return str(value).lower() if isinstance(value, bool) else str(value)
