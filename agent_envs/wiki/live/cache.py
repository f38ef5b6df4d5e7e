"""What a live wiki answered, kept on the disk for a time: one SQLite file that all processes share.

Invariant: only answers are kept, never failures; a file that cannot be used is an error, not an empty cache.
"""

import json
import sqlite3
import time
from pathlib import Path
from typing import Any

from agent_envs.core import BackendUnavailable, SettingsError

_DAY = 86400.0


class Cache:
    """Answers by request, of one process. `days` = 0 keeps nothing."""

    def __init__(self, file: Path, days: float) -> None:
        self._days = days
        if days == 0:
            return
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._table = sqlite3.connect(file, timeout=10, isolation_level=None, check_same_thread=False)
            # Waiting for the disk at every answer took a fifth of a step; only a crash of the machine can tell.
            self._table.execute("PRAGMA synchronous = OFF")
            self._table.execute("CREATE TABLE IF NOT EXISTS answers (request TEXT PRIMARY KEY, answer TEXT, at REAL)")
            self._table.execute("DELETE FROM answers WHERE at < ?", (time.time() - days * _DAY,))
        except (OSError, sqlite3.Error) as error:
            raise SettingsError(
                f"the cache {file} cannot be used ({error}): set TURNWISE_CACHE to a writable folder, delete the file, "
                "or keep nothing with --wiki.cache-days 0"
            ) from error

    def get(self, request: str) -> Any:
        """The answer; None where there is none (answers are lists)."""
        if self._days == 0:
            return None
        try:
            row = self._table.execute("SELECT answer FROM answers WHERE request = ?", (request,)).fetchone()
            return None if row is None else json.loads(row[0])
        except (sqlite3.Error, ValueError) as error:
            raise BackendUnavailable(f"the cache of the live wiki failed: {error}") from error

    def put(self, request: str, answer: list[Any]) -> None:
        if self._days == 0:
            return
        try:
            row = (request, json.dumps(answer), time.time())
            self._table.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", row)
        except sqlite3.Error as error:
            raise BackendUnavailable(f"the cache of the live wiki failed: {error}") from error
