"""From settings to a corpus: its tasks (cheap, no index) and its backend (built once into the cache)."""

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import tantivy

from agent_envs.cache import build_once, cache_dir
from agent_envs.core import TaskSet
from agent_envs.wiki import store, world
from agent_envs.wiki.backend import Page, WikiBackend
from agent_envs.wiki.config import Corpus, WikiConfig
from agent_envs.wiki.index import IndexBackend
from agent_envs.wiki.live.backend import LiveBackend
from agent_envs.wiki.places import Backend, Place
from agent_envs.wiki.questions import questions_of
from agent_envs.wiki.recording import RecordedBackend
from agent_envs.wiki.tasks import world_tasks
from agent_envs.wiki.zim import ZimBackend

_SHAPING = {
    Corpus.WORLD: ("seed", "train_worlds", "valid_worlds", "test_worlds", "pages", "languages"),
    Corpus.GEO: ("languages",),
}
"""The settings that shape the pages of each corpus."""
_SOURCES = {
    Corpus.WORLD: ("names.py", "relations.py", "world.py", "store.py", "tokens.py"),
    Corpus.GEO: ("geo/corrections.py", "geo/facts.py", "geo/pages.py", "store.py", "tokens.py"),
}
"""The code that makes them."""


def tasks_of(config: WikiConfig, split: str) -> TaskSet:
    """The tasks of a split under these settings."""
    if config.source:
        return questions_of(config, split)
    if config.corpus == Corpus.GEO:
        from agent_envs.wiki.geo.questions import geo_tasks

        return geo_tasks(config, split)
    return world_tasks(config, split)


def _pages(config: WikiConfig) -> Iterator[tuple[str, Iterator[Page]]]:
    if config.corpus == Corpus.GEO:
        from agent_envs.wiki.geo import pages

        return pages.pages_of(config.languages)
    return world.pages_of(config)


@lru_cache(maxsize=8)
def corpus_key(config: WikiConfig) -> str:
    """Names the built corpus: the settings that shape it, the code that makes it and the engine's version."""
    digest = blake2b(digest_size=10)
    digest.update(json.dumps({name: getattr(config, name) for name in _SHAPING[config.corpus]}).encode())
    digest.update(tantivy.__version__.encode())
    if config.corpus == Corpus.GEO:
        from agent_envs.wiki.geo.facts import versions

        digest.update(versions().encode())
    for name in _SOURCES[config.corpus]:
        digest.update((Path(__file__).parent / name).read_bytes())
    return f"{config.corpus}-{digest.hexdigest()}"


def backend_of(config: WikiConfig) -> WikiBackend:
    """The backend of these settings, shared by all environments of the process; builds a missing corpus."""
    if config.replay:
        return _replayed(Path(config.replay))
    folder = None if config.backend != Backend.OFFLINE else cache_dir() / "wiki" / corpus_key(config)
    inner: Any = _placed(replace(config.place(), record="")) if folder is None else _opened(folder, _shape(config))
    return _recorded(Path(config.record), inner) if config.record else inner


def _shape(config: WikiConfig) -> WikiConfig:
    """Equal for all settings that have the same pages, so that those are opened once."""
    return WikiConfig(corpus=config.corpus, **{name: getattr(config, name) for name in _SHAPING[config.corpus]})


@lru_cache(maxsize=8)
def _opened(folder: Path, config: WikiConfig) -> IndexBackend:
    return IndexBackend(build_once(folder, lambda place: store.write(place, _pages(config))))


@lru_cache(maxsize=8)
def _replayed(file: Path) -> WikiBackend:
    return RecordedBackend(file)


@lru_cache(maxsize=8)
def _recorded(file: Path, inner: Any) -> WikiBackend:
    return RecordedBackend(file, inner)


@lru_cache(maxsize=8)
def _placed(place: Place) -> WikiBackend:
    return ZimBackend(place) if place.backend == Backend.ZIM else LiveBackend(place)
