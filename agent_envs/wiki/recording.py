"""Recordings: the answers of a backend in a file, from which a run is played again without the wiki.

Invariants: a recording holds one answer to a question, the first that was written, whichever process wrote it; every
process of the run that is recorded uses that answer, so a replay answers as the run was answered; failures are not
recorded. What is missing in a replay is `BackendUnavailable`.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agent_envs.core import BackendUnavailable, SettingsError
from agent_envs.wiki import store
from agent_envs.wiki.backend import Hit, Page, WikiBackend

_KIND = "turnwise wiki recording 1"


class RecordedBackend:
    """A backend whose answers are written to a file, or with no `inner` come from it."""

    def __init__(self, file: Path, inner: WikiBackend | None = None) -> None:
        self.file, self._inner = file, inner
        self._tape: _Tape | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"file": self.file, "_inner": self._inner, "_tape": None}

    @property
    def _opened(self) -> _Tape:
        if self._tape is None or self._tape.pid != os.getpid():
            self._tape = _Tape(self.file, None if self._inner is None else self._inner.fingerprint)
        return self._tape

    def prepare(self, partitions: Sequence[str]) -> None:
        if self._inner is not None:
            self._inner.prepare(partitions)
        _ = self._opened

    @property
    def fingerprint(self) -> str:
        return self._opened.fingerprint

    def _answer(self, question: list[object], ask: Callable[[WikiBackend], Any]) -> Any:
        inner = self._inner
        return self._opened.answer(question, None if inner is None else lambda: ask(inner))

    def resolve(self, title: str, partition: str) -> str | None:
        found: str | None = self._answer(["resolve", partition, title], lambda wiki: wiki.resolve(title, partition))
        return found

    def page(self, title: str, partition: str) -> Page | None:
        def ask(wiki: WikiBackend) -> str | None:
            page = wiki.page(title, partition)
            return None if page is None else store.dump(page).decode("ascii")

        return self._opened.page(self._answer(["page", partition, title], ask))

    def names(self, title: str, partition: str) -> Sequence[str]:
        ask = lambda wiki: list(wiki.names(title, partition))  # noqa: E731
        return tuple(self._answer(["names", partition, title], ask))

    def made(self, name: str, make: Callable[[WikiBackend], Any]) -> Any:
        """What was made of the wiki, as JSON: the recording holds it in place of all that was asked for it."""
        return self._answer(["made", name], make)

    def search(self, query: str, partition: str, k: int = 5, offset: int = 0) -> list[Hit]:
        def ask(wiki: WikiBackend) -> list[list[object]]:
            return [[hit.title, hit.snippet, hit.score] for hit in wiki.search(query, partition, k, offset)]

        return [Hit(*row) for row in self._answer(["search", partition, query, k, offset], ask)]

    def similar(self, title: str, partition: str, k: int = 5) -> list[str]:
        return list(self._answer(["similar", partition, title, k], lambda wiki: wiki.similar(title, partition, k)))

    def random(self, rng: np.random.Generator, partition: str) -> str:
        # One draw, with or without the wiki: what the generator gives afterwards is the same.
        seed = int(rng.integers(2**62))
        ask = lambda wiki: wiki.random(np.random.default_rng(seed), partition)  # noqa: E731
        return str(self._answer(["random", partition, seed], ask))


class _Tape:
    """The file of a recording, open in one process."""

    def __init__(self, file: Path, fingerprint: str | None) -> None:
        """Without a fingerprint the file must be there, and is only read."""
        self.pid = os.getpid()
        self._file, self._writes = file.expanduser(), fingerprint is not None
        self._lock = threading.Lock()
        self._known: dict[str, Any] = {}
        self._pages: dict[str, Page] = {}
        self.fingerprint = ""
        try:
            self._handle = self._file.open("a+b" if self._writes else "rb")
            with self._alone():
                if self._writes and not self._file.stat().st_size:
                    self._append([_KIND, fingerprint])
                self._catch_up()
        except OSError as error:
            flag = "record" if self._writes else "replay"
            raise SettingsError(f"--wiki.{flag} {file}: {error.strerror or error}") from error
        if not self.fingerprint:
            raise SettingsError(f"{file} is not a recording of a wiki: it is empty")
        if fingerprint not in (None, self.fingerprint):
            raise SettingsError(f"--wiki.record {file} holds the answers of another wiki: name another file")

    def _alone(self) -> _Flock:
        return _Flock(self._handle, writes=self._writes)

    def _append(self, row: list[object]) -> None:
        self._handle.write(json.dumps(row).encode("ascii") + b"\n")
        self._handle.flush()

    def _catch_up(self) -> None:
        """Reads what came to the file since, by us or another process."""
        begin = getattr(self, "_read", 0)
        self._handle.seek(begin)
        data = self._handle.read()
        whole = data[: data.rfind(b"\n") + 1]
        if self._writes and len(whole) < len(data):  # the end of one who died while writing
            self._handle.truncate(begin + len(whole))
        self._read = begin + len(whole)
        for line in whole.splitlines():
            try:
                question, answer = json.loads(line)
                if begin == 0 and not self.fingerprint:
                    if question != _KIND:
                        raise ValueError("another kind of file")
                    self.fingerprint = str(answer)
                else:
                    self._known.setdefault(str(question), answer)
            except (ValueError, TypeError, RecursionError) as error:
                raise SettingsError(f"{self._file} is not a recording of a wiki, or is broken") from error

    def answer(self, question: list[object], ask: Callable[[], Any] | None) -> Any:
        key = json.dumps(question)
        with self._lock:
            if key in self._known:
                return self._known[key]
        if ask is None:
            shown = key if len(key) <= 200 else key[:199] + "…"
            raise BackendUnavailable(f"the recording {self._file} has no answer to {shown}")
        answer = ask()
        with self._lock, self._alone():
            self._catch_up()
            if key not in self._known:
                self._append([key, answer])
                self._catch_up()
            return self._known[key]

    def page(self, data: str | None) -> Page | None:
        if data is None:
            return None
        with self._lock:
            if data not in self._pages:
                self._pages[data] = store.load(data.encode("ascii"))
            return self._pages[data]


class _Flock:
    """Keeps other processes from the file; readers of a finished recording need not wait for each other."""

    def __init__(self, handle: Any, *, writes: bool) -> None:
        self._handle, self._kind = handle, fcntl.LOCK_EX if writes else fcntl.LOCK_SH

    def __enter__(self) -> None:
        fcntl.flock(self._handle, self._kind)

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._handle, fcntl.LOCK_UN)
