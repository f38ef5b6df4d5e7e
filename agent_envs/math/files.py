r"""Tasks from files and data sets in the manner of GSM8K and MATH.

Invariant: no question is in two splits: one that stands twice belongs to test before valid before train; where a source
has no split of its own for something, the question's own hash decides. A row that cannot be used is an error.

A row has a question (``question`` or ``problem``) and an answer: ``answer``, of which what follows ``####`` counts, or
``solution`` with a ``\boxed{}``. What else these say is the solution, one thought a line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agent_envs.boxed import boxed
from agent_envs.core import SPLITS, SettingsError, Task
from agent_envs.math.config import MathConfig
from agent_envs.math.problem import Problem, hashed_split
from agent_envs.scoring import is_cjk

_ENDINGS = (".jsonl", ".parquet")
_NAMES = {"train": "train", "valid": "valid", "validation": "valid", "test": "test"}
_CALCULATED = re.compile(r"<<[^<>]{0,200}>>")
Row = Mapping[str, Any]


def load(config: MathConfig) -> dict[str, tuple[Task, ...]]:
    """Tasks by split. Raises SettingsError for a source that cannot be read."""
    parts = _parts(config.source)
    room = {split: config.train_tasks if split == "train" else config.held_out_tasks for split in SPLITS}
    tasks: dict[str, list[Task]] = {split: [] for split in SPLITS}
    seen: set[str] = set()
    # What stands in two parts belongs to the one that must not be trained on.
    for part in sorted(parts, key=("test", "valid", "train", "").index):
        for number, row in enumerate(parts[part], 1):
            question, problem = _read(row, f"{config.source}: row {number}{f' of {part}' if part else ''}")
            split = _place(part, question, parts)
            language = "zh" if any(map(is_cjk, question)) else "en"
            if question in seen or language not in config.languages or len(tasks[split]) == room[split]:
                continue
            seen.add(question)
            name = f"math-{split}-{len(tasks[split])}"
            tasks[split].append(Task(name, split, question, language, _level(row), problem))
    return {split: tuple(found) for split, found in tasks.items()}


def _place(part: str, question: str, parts: Mapping[str, Any]) -> str:
    """The split of a question, from a part of that name ("": the only one)."""
    hashed = hashed_split(question)
    if part == "train" and not {"valid", "test"} <= set(parts):
        # Only what the source does not have is taken from its training part.
        return "train" if hashed in parts else hashed
    return part or hashed


def _parts(source: str) -> dict[str, Iterable[Row]]:
    if source.startswith("datasets:"):
        return _dataset(source)
    path = Path(source).expanduser()
    if path.is_dir():
        files = {_NAMES[f.stem]: f for f in sorted(path.iterdir()) if f.stem in _NAMES and f.suffix in _ENDINGS}
        if "train" not in files:
            raise SettingsError(f"math: {source} holds no train.jsonl or train.parquet")
        return {part: _rows(file) for part, file in files.items()}
    if path.suffix not in _ENDINGS or not path.is_file():
        raise SettingsError(
            f"math: no source {source!r}: use generated, reasoning-gym:FAMILY, datasets:NAME, "
            "a .jsonl or .parquet file, or a folder with train and test files"
        )
    return {"": _rows(path)}


def _rows(file: Path) -> list[Row]:
    if file.suffix == ".parquet":
        try:
            from pyarrow import ArrowException, parquet
        except ImportError as error:
            raise SettingsError(f"{file} needs pyarrow: pip install 'turnwise[datasets]'") from error
        try:
            rows: list[Row] = parquet.read_table(file).to_pylist()
        except (OSError, ArrowException) as error:
            raise SettingsError(f"{file} cannot be read as Parquet: {str(error).splitlines()[0]}") from error
        return rows
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} cannot be read: {error}") from error
    return [_row(line, f"{file}: line {number}") for number, line in enumerate(lines, 1) if line.strip()]


def _row(line: str, where: str) -> Row:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{where} is no JSON") from error
    if not isinstance(row, dict):
        raise SettingsError(f"{where} is no JSON object")
    return row


def _dataset(source: str) -> dict[str, Iterable[Row]]:
    try:
        import datasets
    except ImportError as error:
        raise SettingsError(f"--math.source {source} needs datasets: pip install 'turnwise[datasets]'") from error
    name, _, config = source.removeprefix("datasets:").partition(":")
    try:
        found = datasets.load_dataset(name, config or None)
    except Exception as error:  # what it raises differs with what is missing: a name, a connection, a cache
        raise SettingsError(f"math: datasets cannot load {name!r}: {str(error).strip().splitlines()[0]}") from error
    parts = {_NAMES[part]: found[part] for part in found if part in _NAMES}
    if "train" not in parts:
        raise SettingsError(f"math: the data set {name!r} has no train split (it has: {', '.join(found)})")
    return parts


def _read(row: Row, where: str) -> tuple[str, Problem]:
    question = next((row[key] for key in ("question", "problem") if isinstance(row.get(key), str)), "").strip()
    if not question:
        raise SettingsError(f"{where} has no question: a text under 'question' or 'problem' is needed")
    answer, solution = row.get("answer"), row.get("solution")
    told = solution if isinstance(solution, str) else ""
    if isinstance(answer, int | float) and not isinstance(answer, bool):
        answer = f"{answer}"
    if not isinstance(answer, str):
        try:
            answer = boxed(told)
        except ValueError as error:
            message = f"{where} has no answer: a text under 'answer', or \\boxed{{}} in 'solution', is needed"
            raise SettingsError(message) from error
    elif "####" in answer:
        text, _, answer = answer.rpartition("####")
        told = told or text
    elif "\\boxed{" in answer:
        answer = boxed(answer)
    if not answer.strip():
        raise SettingsError(f"{where} has an empty answer")
    lines = (_CALCULATED.sub("", line).strip() for line in told.splitlines())
    return question, Problem(answer.strip(), solution=tuple(line for line in lines if line))


def _level(row: Row) -> int:
    """1 to 9, where the source says so, as in "Level 5"; else 1."""
    digits = [char for char in str(row.get("level", ""))[:20] if char in "123456789"]
    return int(digits[0]) if digits else 1
