"""The questions made of a wiki's own pages: made once, kept in the cache, and refused when the wiki changed.

Invariants: all processes ask the same questions; a recording holds the questions of its run, so that a replay has them
without a wiki; whatever is kept belongs to the wiki it was made of.
"""

import datetime
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from agent_envs.cache import build_once, cache_dir
from agent_envs.core import SPLITS, SettingsError, Task, TaskSet, check_split, number_after
from agent_envs.scoring import normalise
from agent_envs.wiki.backend import WikiBackend
from agent_envs.wiki.config import WikiConfig
from agent_envs.wiki.own.questions import Made, Sizes, made_of
from agent_envs.wiki.own.walk import Reading, Walk
from agent_envs.wiki.places import Backend
from agent_envs.wiki.recording import RecordedBackend
from agent_envs.wiki.replies import last_shown
from agent_envs.wiki.tasks import Gold, Hop

_SHAPING = ("crawl", "starts", "seed", "questions", "min_hops", "max_hops", "languages", "max_lines", "max_chars")
"""The settings that shape the questions; the wiki does too."""
_FEWEST = 5
"""Questions of a split and language; with fewer something is wrong."""
_MOST_FORMS = 50
"""Accepted forms of an answer."""
_CHECKED = 5
"""Questions that are looked up again at every start."""
_META, _ROWS = "meta.json", "questions.json"

Rows = dict[str, dict[str, list[Any]]]
"""Language → split → questions, as JSON."""


def own_tasks(config: WikiConfig, backend: WikiBackend, split: str) -> TaskSet:
    """The questions of a split. Makes them, which may take minutes, where the cache has none.

    Raises SettingsError, BackendUnavailable.
    """
    check_split("wiki", split)
    opened: Any = backend  # its hash is its identity
    return _tasks(config, opened, split)


@lru_cache(maxsize=24)
def _tasks(config: WikiConfig, backend: WikiBackend, split: str) -> TaskSet:
    opened: Any = backend
    rows, languages = _rows(config, opened), config.languages
    table = [(language, nth) for language in languages for nth in range(len(rows[language][split]))]
    table.sort(key=lambda one: one[1])
    number = {one: at for at, one in enumerate(table)}

    def name(language: str) -> str:
        return f"page{config.seed}-{split}-{language}-"

    def build(index: int) -> Task:
        language, nth = table[index]
        prompt, hops, answer, accepted = rows[language][split][nth]
        gold = Gold(partition_of(config, language), tuple(Hop(*hop) for hop in hops), answer, tuple(accepted))
        return Task(f"{name(language)}{nth}", split, prompt, language, len(hops), gold)

    def number_of(task_id: str) -> int | None:
        found = ((language, number_after(name(language), task_id)) for language in languages)
        return next((number.get((language, nth)) for language, nth in found if nth is not None), None)

    return TaskSet(len(table), build, number_of)


def check_own(config: WikiConfig, backend: WikiBackend) -> None:
    """Looks a few questions up again. Raises SettingsError where the wiki does not answer them as it did."""
    tasks = own_tasks(config, backend, "test")
    for at in () if config.replay else range(0, len(tasks), -(-len(tasks) // _CHECKED)):
        task = tasks[at]
        if not _holds(task.data, backend):
            raise SettingsError(
                f"wiki: the wiki changed since its questions were made (see {task.prompt!r}): make them anew by "
                f"deleting {_folder(config)}"
            )


def partition_of(config: WikiConfig, language: str) -> str:
    """The wiki that questions in a language are about."""
    return f"{config.corpus}-{language}" if config.backend == Backend.OFFLINE else language


def _holds(gold: Gold, backend: WikiBackend) -> bool:
    """Whether the lines that lead to an answer still stand where they did."""
    lines = []
    for hop in gold.hops:
        page = backend.page(hop.title, gold.partition)
        if page is None or len(page.lines) < hop.line or not page.lines[hop.line - 1].text.startswith(hop.relation):
            return False
        lines.append(page.lines[hop.line - 1].text)
    return gold.answer in lines[-1]


def _folder(config: WikiConfig) -> Path:
    place = config.place()
    where = [place.backend, str(place.file.resolve()) if place.path else "", place.url("{}"), config.corpus]
    named = json.dumps([where, _named(config)])
    code = "".join((Path(__file__).parent / f"{name}.py").read_text("utf-8") for name in ("facts", "questions", "walk"))
    return cache_dir() / "wiki" / f"own-{blake2b(f'{named}{code}'.encode(), digest_size=10).hexdigest()}"


def _named(config: WikiConfig) -> str:
    return json.dumps([getattr(config, name) for name in _SHAPING])


@lru_cache(maxsize=8)
def _rows(config: WikiConfig, backend: WikiBackend) -> Rows:
    if isinstance(backend, RecordedBackend):
        rows: Rows = backend.made(_named(config), lambda wiki: _kept(config, wiki))
        return rows
    return _kept(config, backend)


def _kept(config: WikiConfig, backend: WikiBackend) -> Rows:
    folder = build_once(_folder(config), lambda place: _build(place, config, backend))
    meta = json.loads((folder / _META).read_text("utf-8"))
    if meta["fingerprint"] != backend.fingerprint:
        raise SettingsError(
            f"wiki: this is another wiki than the one that its questions were made of on {meta['made']}: "
            f"make them anew by deleting {folder}"
        )
    rows: Rows = json.loads((folder / _ROWS).read_text("utf-8"))
    return rows


def _build(folder: Path, config: WikiConfig, backend: WikiBackend) -> None:
    rows = {language: _made(config, backend, language) for language in config.languages}
    meta = {"fingerprint": backend.fingerprint, "made": datetime.date.today().isoformat()}
    (folder / _ROWS).write_text(json.dumps(rows), "utf-8")
    (folder / _META).write_text(json.dumps(meta), "utf-8")


def _made(config: WikiConfig, backend: WikiBackend, language: str) -> dict[str, list[Any]]:
    """Split → questions. Raises SettingsError where there are too few."""
    partition = partition_of(config, language)
    reading = Reading(
        config.crawl,
        config.max_hops,
        config.starts,
        lambda page: last_shown(page, 1, language, config.max_lines, config.max_chars),
    )
    rng = np.random.default_rng([config.seed, *partition.encode()])
    with _bar(f"reading the wiki ({language})", config.crawl) as on_page:
        known = Walk(backend, partition, reading, rng).run(on_page)
    sizes = Sizes(config.min_hops, config.max_hops, config.questions)
    made = made_of(known, sizes, language, config.seed, rng)
    names: dict[str, Sequence[str]] = {}
    with _bar(f"other names of answers ({language})", len(made)) as on_answer:
        for at, one in enumerate(made, 1):
            if one.target is not None and one.target not in names:
                names[one.target] = backend.names(one.target, partition)
            on_answer(at)
    rows: dict[str, list[Any]] = {split: [] for split in SPLITS}
    for one in made:
        hops = [[hop.title, hop.line, hop.relation] for hop in one.hops]
        rows[one.split].append([one.prompt, hops, one.answer, _accepted(one, names.get(one.target or "", ()))])
    if min(map(len, rows.values())) < _FEWEST:
        counts = ", ".join(f"{len(rows[split])} {split}" for split in SPLITS)
        raise SettingsError(
            f"wiki: {len(known.pages)} pages of the wiki gave too few questions ({counts}; {_FEWEST} of each are "
            "needed): raise crawl, or name pages with facts or links as starts"
        )
    return rows


def _accepted(made: Made, names: Sequence[str]) -> list[str]:
    """All accepted forms, each once; none that has no letter or digit."""
    forms = {normalise(form): form for form in reversed((made.answer, *made.forms, *names))}
    return [form for key, form in reversed(forms.items()) if key][:_MOST_FORMS]


@contextmanager
def _bar(title: str, total: int) -> Iterator[Callable[[int], object]]:
    """A progress bar on the terminal, where there is one; what it gives sets how far it is."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda done: progress.update(task, completed=done)
