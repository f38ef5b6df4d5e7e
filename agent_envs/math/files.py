r"""Tasks from files and data sets in the manner of GSM8K and MATH.

Invariant: no question is in two splits (`agent_envs.splits`); those that a source does not have are taken from its
training part. A row that cannot be used is an error.

A row has a question (``question`` or ``problem``) and an answer: ``answer``, of which what follows ``####`` counts, or
``solution`` with a ``\boxed{}``. What else these say is the solution, one thought a line.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from agent_envs.boxed import boxed
from agent_envs.core import SettingsError, Task
from agent_envs.math.config import MathConfig
from agent_envs.math.problem import Problem
from agent_envs.rows import ENDINGS, SPLIT_OF, Row, checked, parts_of, rows_of
from agent_envs.splits import Wanted, tasks_by_split

_CALCULATED = re.compile(r"<<[^<>]{0,200}>>")


def load(config: MathConfig) -> dict[str, tuple[Task, ...]]:
    """Tasks by split. Raises SettingsError for a source that cannot be read."""
    parts = {part: _numbered(config.source, part, rows) for part, rows in _parts(config.source).items()}
    wanted = Wanted("math", config.languages, config.train_tasks, config.held_out_tasks, fill=True)
    return tasks_by_split(wanted, parts, _read, _task)


def _numbered(source: str, part: str, rows: Iterable[Row]) -> Iterator[tuple[str, Row]]:
    of = f" of {part}" if part else ""
    return ((f"{source}: row {number}{of}", row) for number, row in enumerate(rows, 1))


def _task(name: str, split: str, language: str, found: tuple[str, int, Problem]) -> Task:
    question, level, problem = found
    return Task(name, split, question, language, level, problem)


def _parts(source: str) -> dict[str, Iterable[Row]]:
    if source.startswith("datasets:"):
        return _dataset(source)
    files = parts_of(source, (*ENDINGS, ".parquet"))
    if not files and not Path(source).expanduser().is_dir():
        raise SettingsError(
            f"math: no source {source!r}: use generated, reasoning-gym:FAMILY, datasets:NAME, "
            "a .jsonl, .jsonl.gz or .parquet file, or a folder with train and test files"
        )
    if not {"", "train"} & set(files):
        raise SettingsError(f"math: {source} holds no train.jsonl or train.parquet")
    return {part: _parquet(file) if file.suffix == ".parquet" else _json(file) for part, file in files.items()}


def _json(file: Path) -> Iterator[Row]:
    return (row for _, row in rows_of(file))


def _parquet(file: Path) -> list[Row]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise SettingsError(f"{file} needs pyarrow: pip install 'turnwise[datasets]'") from error
    try:
        rows: list[Row] = parquet.read_table(file).to_pylist()
    except (OSError, ArrowException) as error:
        raise SettingsError(f"{file} cannot be read as Parquet: {str(error).splitlines()[0]}") from error
    return rows


def _dataset(source: str) -> dict[str, Iterable[Row]]:
    try:
        import datasets
    except ImportError as error:
        raise SettingsError(f"--math.source {source} needs datasets: pip install 'turnwise[datasets]'") from error
    name, _, config = source.removeprefix("datasets:").partition(":")
    try:
        result = datasets.load_dataset(name, config or None)
    except Exception as error:  # what it raises differs with what is missing: a name, a connection, a cache
        raise SettingsError(f"math: datasets cannot load {name!r}: {str(error).strip().splitlines()[0]}") from error
    parts = {SPLIT_OF[part]: result[part] for part in result if part in SPLIT_OF}
    if "train" not in parts:
        raise SettingsError(f"math: the data set {name!r} has no train split (it has: {', '.join(result)})")
    return parts


def _read(row: Row, where: str) -> tuple[str, tuple[str, int, Problem]]:
    keys = (key for key in ("question", "problem") if isinstance(row.get(key), str))
    question = next((checked(row[key], key, where) for key in keys), "").strip()
    if not question:
        raise SettingsError(f"{where} has no question: a text under 'question' or 'problem' is needed")
    answer, solution = row.get("answer"), row.get("solution")
    worked = checked(solution, "solution", where) if isinstance(solution, str) else ""
    if isinstance(answer, int | float) and not isinstance(answer, bool):
        answer = f"{answer}"
    if not isinstance(answer, str):
        answer = _box(worked, where)
    elif "####" in checked(answer, "answer", where):
        text, _, answer = answer.rpartition("####")
        worked = worked or text
    elif "\\boxed{" in answer:
        answer = _box(answer, where)
    if not answer.strip():
        raise SettingsError(f"{where} has an empty answer")
    lines = (_CALCULATED.sub("", line).strip() for line in worked.splitlines())
    problem = Problem(answer.strip(), solution=tuple(line for line in lines if line))
    return question, (question, _level(row), problem)


def _box(text: str, where: str) -> str:
    try:
        return boxed(text)
    except ValueError as error:
        message = f"{where} has no answer: a text under 'answer', or \\boxed{{}} in 'solution', is needed"
        raise SettingsError(message) from error


def _level(row: Row) -> int:
    """1 to 9, where the source says so, as in "Level 5"; else 1."""
    digits = [char for char in str(row.get("level", ""))[:20] if char in "123456789"]
    return int(digits[0]) if digits else 1
