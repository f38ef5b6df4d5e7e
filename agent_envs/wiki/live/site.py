"""One live wiki in one process: questions to its API, asked politely, answered from the cache where it knows.

Invariant: whatever the wiki answers, a question ends within its patience with an answer in the API's own format, with
`Refused` (the wiki knows no such thing) or with `BackendUnavailable`.
"""

import json
import os
import re
import time
from hashlib import blake2b
from typing import Any
from urllib.parse import urlsplit

from agent_envs.cache import cache_dir
from agent_envs.core import BackendUnavailable, SettingsError
from agent_envs.wiki import markup, tokens
from agent_envs.wiki.live.cache import Cache
from agent_envs.wiki.live.queue import turn
from agent_envs.wiki.places import Place

_BUSY = frozenset({"maxlag", "ratelimited", "readonly"})
"""Errors of the API that pass."""
_NO_PAGE = frozenset({"missingtitle", "invalidtitle", "pagecannotexist", "nosuchpageid"})
_MAXLAG = 5
"""Seconds that the wiki's copies may lag before it should refuse us, as Wikimedia asks of programs."""
_FIRST_WAIT, _MOST_WAIT = 0.25, 4.0


class Refused(Exception):  # noqa: N818 (an answer)
    """There is no page of such a title, and there cannot be one."""


class Site:
    """The wiki at one address."""

    def __init__(self, url: str, place: Place) -> None:
        """Raises SettingsError."""
        try:
            from agent_envs.wiki.live.wire import Wire
        except ImportError as error:
            raise SettingsError(f"--wiki.backend live needs {error.name}: pip install 'turnwise[wikipedia]'") from error
        self.host = urlsplit(url).hostname
        self.deadline = 0.0
        self._place = place
        try:
            self._wire = Wire(url, f"turnwise ({place.contact or 'trains agents to read wikis'})", place.private_hosts)
        except ValueError as error:
            raise SettingsError(f"wiki: api_url: {error}") from error
        folder = cache_dir() / "wiki"
        name = f"live-{blake2b(url.encode(), digest_size=8).hexdigest()}"
        self.cache = Cache(folder / f"{name}-{markup.VERSION}.sqlite", place.cache_days)
        self._lock = folder / f"{name}.lock"
        folder.mkdir(parents=True, exist_ok=True)
        self._namespaces: frozenset[str] | None = None

    def begin(self) -> None:
        """A new question: all requests for it must end within the patience."""
        self.deadline = time.monotonic() + self._place.patience

    def ask(self, **params: Any) -> Any:
        """The answer to one request, a JSON object. Raises Refused, BackendUnavailable."""
        from agent_envs.wiki.live.wire import Broken, Later

        params = {"format": "json", "formatversion": 2, "maxlag": _MAXLAG, **params}
        lock = self._lock.with_suffix(f".{os.getpid() % self._place.in_flight}.lock")
        pause = _FIRST_WAIT
        while True:
            try:
                with turn(lock, self._place.spacing, self.deadline):
                    answer = self._wire.get(params, self.deadline)
                code = _error(answer)
                if code in _BUSY:
                    raise Later(f"answers {code}", self._wire.after)
                break
            except Later as later:
                wait = pause if later.after is None else later.after
                if time.monotonic() + wait >= self.deadline:
                    asked = "" if later.after is None else f", and asks to wait {later.after:.0f} s"
                    raise self._failure(f"{later}{asked}; tried for {self._place.patience:g} s") from later
                time.sleep(wait)
                pause = min(2 * pause, _MOST_WAIT)
            except Broken as broken:
                raise self._failure(str(broken)) from broken
        if code in _NO_PAGE:
            raise Refused(code)
        if code is not None:
            raise self._failure(f"answers with the error {code}")
        return answer

    def _failure(self, why: str) -> BackendUnavailable:
        return BackendUnavailable(f"the wiki at {self.host} {why}")

    def kept(self, kind: str, **params: Any) -> tuple[str, Any]:
        """(key, what the cache knows) of a question; None where it knows nothing."""
        key = json.dumps([kind, params])
        return key, self.cache.get(key)

    @property
    def namespaces(self) -> frozenset[str]:
        """Folded names of all namespaces but that of the pages: what stands before ``:`` in a title of another kind."""
        if self._namespaces is None:
            key, names = self.kept("namespaces")
            if names is None:
                about = self.ask(action="query", meta="siteinfo", siprop="namespaces|namespacealiases")["query"]
                found = [*about["namespaces"].values(), *about["namespacealiases"]]
                names = sorted(
                    {tokens.fold(str(name)) for one in found if one["id"] != 0 for name in _names(one)} - {""}
                )
                self.cache.put(key, names)
            self._namespaces = frozenset(names)
        return self._namespaces


def _names(namespace: Any) -> list[Any]:
    return [namespace.get(key, "") for key in ("name", "canonical", "alias")]


def _error(answer: Any) -> str | None:
    """The code of the API's error, which it also sends with status 200."""
    if not isinstance(answer, dict):
        return "no-object"
    error = answer.get("error")
    if error is None:
        return None
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, str) and re.fullmatch("[A-Za-z0-9_-]{1,60}", code) else "unnamed"
