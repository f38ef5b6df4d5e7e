"""Questions about any wiki, from a file of JSON lines: a question and its answers, and perhaps the page they are about.

The columns of HotpotQA, 2WikiMultihopQA, MuSiQue, Natural Questions and Bamboogle are read. Invariants: no question is
in two splits, and where rows name their page, neither is a page; a row that cannot be used is an error.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any

from agent_envs.core import SettingsError, Task, TaskSet, check_split
from agent_envs.rows import MOST_TEXT, Row, checked, parts_of, rows_of, text_of
from agent_envs.splits import Wanted, tasks_by_split
from agent_envs.wiki.config import Corpus, WikiConfig
from agent_envs.wiki.places import Backend
from agent_envs.wiki.tasks import Gold

_QUESTION = ("question", "question_text", "Question")
_ANSWERS = ("answers", "golden_answers", "answer", "Answer")
_TITLE = ("title", "document_title")
_MOST_ANSWERS = 100
_ALL = 10_000_000

Found = tuple[str, str, int, tuple[str, ...]]
"""(question, page, level, answers)"""


def questions_of(config: WikiConfig, split: str) -> TaskSet:
    """The questions of a split. Raises SettingsError."""
    check_split("wiki", split)
    tasks, number_of = _load(config.source, config.languages, config.corpus if _is_offline(config) else "")
    return TaskSet(len(tasks[split]), tasks[split].__getitem__, number_of[split].get)


def _is_offline(config: WikiConfig) -> bool:
    return config.backend == Backend.OFFLINE


@lru_cache(maxsize=8)
def _load(
    source: str, languages: tuple[str, ...], corpus: Corpus | str
) -> tuple[dict[str, tuple[Task, ...]], dict[str, dict[str, int]]]:
    files = parts_of(source)
    if not files:
        raise SettingsError(
            f"wiki: no questions at {source!r}: name a .jsonl or .jsonl.gz file, or a folder with train and test files"
        )

    def make(name: str, split: str, language: str, found: Found) -> Task | None:
        question, _, level, answers = found
        if not answers:  # a row that says that it has no answer
            return None
        partition = f"{corpus}-{language}" if corpus else language
        return Task(name, split, question, language, level, Gold(partition, (), answers[0], answers))

    def read(row: Row, where: str) -> tuple[str, Found]:
        question = text_of(row, _QUESTION, where).strip()
        if not question:
            raise SettingsError(f"{where} has an empty question")
        return question, (question, text_of(row, _TITLE, where, needed=False), _level(row), _answers(row, where))

    parts = {part: rows_of(Path(file)) for part, file in files.items()}
    wanted = Wanted("wiki", languages, _ALL, _ALL, fill=True)
    tasks = tasks_by_split(wanted, parts, read, make, split_by=lambda text, found: found[1] or text)
    return tasks, {split: {task.id: at for at, task in enumerate(made)} for split, made in tasks.items()}


def _answers(row: Row, where: str) -> tuple[str, ...]:
    """All accepted answers, the first one first; nothing where the row says that there is none."""
    if row.get("answerable") is False:
        return ()
    if isinstance(row.get("annotations"), list):
        given: list[Any] = _annotated(row, where)
        if not given:
            return ()
    else:
        key = next((key for key in _ANSWERS if row.get(key) is not None), None)
        if key is None:
            raise SettingsError(f"{where} has no {' or '.join(map(repr, _ANSWERS))}")
        also = row.get("answer_aliases") or []
        given = [*_listed(row[key]), *_listed(also)]
    texts = [checked(_written(one), "answers", where).strip() for one in given[:_MOST_ANSWERS]]
    kept = tuple(dict.fromkeys(text for text in texts if text))
    if not kept:
        raise SettingsError(f"{where} has an empty answer")
    return kept


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _written(value: Any) -> Any:
    return f"{value}" if isinstance(value, int | float) and not isinstance(value, bool) else value


def _annotated(row: Row, where: str) -> list[Any]:
    """The short answers of Natural Questions: places in the text, in words."""
    text = row.get("document_text")
    if not isinstance(text, str) or len(text) > 64 * MOST_TEXT:
        raise SettingsError(f"{where} has annotations but no 'document_text' that they could be about")
    words, found = text.split(" "), []
    try:
        for one in row["annotations"]:
            spans = [(span["start_token"], span["end_token"]) for span in one.get("short_answers", ())]
            found += [" ".join(words[start:end]) for start, end in spans]
            said = one.get("yes_no_answer", "NONE")
            found += [said.lower()] if said in ("YES", "NO") else []
    except (AttributeError, KeyError, TypeError) as error:
        raise SettingsError(f"{where}: the annotations are not those of Natural Questions") from error
    return found


def _level(row: Row) -> int:
    """How many pages a question needs, where the row says so."""
    steps, facts = row.get("question_decomposition"), row.get("supporting_facts")
    if isinstance(steps, list):
        return min(max(len(steps), 1), 9)
    titles = facts.get("title") if isinstance(facts, dict) else facts
    if not isinstance(titles, list):
        return 1
    named = {one[0] if isinstance(one, list) and one else one for one in titles if isinstance(one, str | list)}
    return min(max(len({one for one in named if isinstance(one, str)}), 1), 9)
