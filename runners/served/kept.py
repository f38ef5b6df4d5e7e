"""Episodes that are kept while an evaluation goes on: one JSON line each.

Invariant: an episode whose line was written is never lost and never played again under the same settings; a line that
was cut off by the end of a process is taken away, and anything else that cannot be read is refused.
"""

import errno
import json
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from agent_envs.core import Task
from agents.tree import Kind, Node
from agents.tree.episode import Job, Served
from runners.command_line.errors import UserError
from runners.command_line.outputs import writing
from runners.command_line.plain import differences, dump_json, finite
from runners.run_folder.folder import LOCK, hold, write_whole
from runners.served.settings import fingerprint

EPISODES, SETTINGS, RESULT = "episodes.jsonl", "settings.json", "result.json"
Key = tuple[str, str, str, int]
"""(environment, mode, task, sample)."""


class Kept:
    """The episodes in ``folder``, which is made where it is missing and held until `close`.

    ``settings`` are what each environment is measured with. Raises UserError where the folder holds episodes of other
    settings, or something else.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self.folder, self._lock = folder, threading.Lock()
        self._lines: dict[Key, dict[str, Any]] = {}
        self._names: dict[str, str] = {}
        """Environment → fingerprint of its settings."""
        with writing(folder, "; name another folder with --out"), ExitStack() as undo:
            folder.mkdir(parents=True, exist_ok=True)
            self._held = undo.enter_context(hold(folder, "used"))
            self._check(settings)
            self._file = undo.enter_context((folder / EPISODES).open("a+b", buffering=0))
            self._read()
            undo.pop_all()

    def _check(self, settings: Mapping[str, Any]) -> None:
        """Raises UserError unless what is there was measured with the same settings; adds those of new environments."""
        place, episodes, there = self.folder / SETTINGS, self.folder / EPISODES, {}
        if place.exists() and episodes.exists() and episodes.stat().st_size:
            try:
                there = dict(json.loads(place.read_text("utf-8")))
                both = {env: there[env] for env in settings if env in there}
                changed = list(differences(both, {env: json.loads(dump_json(settings[env])) for env in both}))
            except (ValueError, TypeError, RecursionError):
                raise UserError(f"{place} is damaged: name another folder with --out") from None
            if changed:
                raise UserError(
                    f"{self.folder} holds episodes of other settings ({', '.join(changed[:3])}): name another folder "
                    "with --out"
                )
        elif {path.name for path in self.folder.iterdir()} - {LOCK, SETTINGS, f".{SETTINGS}", EPISODES, RESULT} or (
            place.exists() and not _ours(place)
        ):
            raise UserError(f"{self.folder} is not empty and holds no episodes: name another folder with --out")
        now = json.loads(dump_json({**there, **settings}))
        write_whole(place, dump_json(now))
        self._names = {env: fingerprint(what) for env, what in now.items()}

    def _read(self) -> None:
        self._file.seek(0)
        *lines, cut = self._file.read().split(b"\n")
        for number, line in enumerate(lines, 1):
            try:
                entry = json.loads(line)
                self._lines[key_of(entry)] = entry
                if entry["settings"] != self._names[entry["env"]]:
                    raise ValueError
                restored(entry, Job(Task(entry["task"], "", "")))
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
                raise UserError(
                    f"{self.folder / EPISODES} is damaged in line {number}: take that line away, or name another "
                    "folder with --out"
                ) from None
        self._file.truncate(self._file.tell() - len(cut))

    def holds(self, env: str, tasks: Sequence[Task], samples: int) -> int:
        """How many of the episodes of an evaluation are there."""
        wanted = [("sampled", sample) for sample in range(samples)] + [("greedy", 0)]
        return sum((env, mode, task.id, sample) in self._lines for task in tasks for mode, sample in wanted)

    def get(self, key: Key, job: Job) -> Served | None:
        """The episode that was kept, as ``job``."""
        entry = self._lines.get(key)
        return None if entry is None else restored(entry, job)

    def add(self, env: str, mode: str, episode: Served) -> None:
        """Keeps an episode; it is on the disk when this returns. Raises UserError."""
        entry = finite({"env": env, "mode": mode, "settings": self._names[env], **as_entry(episode)})
        line = json.dumps(entry).encode("ascii") + b"\n"
        with self._lock, writing(self.folder / EPISODES):
            end = self._file.seek(0, os.SEEK_END)
            try:
                if self._file.write(line) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(self._file.fileno())
            except OSError:
                self._file.truncate(end)
                raise
            self._lines[key_of(entry)] = entry

    def close(self) -> None:
        with self._lock:
            self._file.close()
        self._held.close()


def _ours(place: Path) -> bool:
    """Whether a file holds settings as they are written here."""
    try:
        there = json.loads(place.read_text("utf-8"))
        return all("endpoint" in dump_json(settings) for settings in dict(there).values())
    except (OSError, ValueError, TypeError, RecursionError):
        return False


def key_of(entry: Mapping[str, Any]) -> Key:
    return entry["env"], entry["mode"], entry["task"], entry["sample"]


def as_entry(episode: Served) -> dict[str, Any]:
    """An episode as plain values."""
    end = episode.end
    return {
        "task": episode.job.task.id,
        "sample": episode.job.sample,
        "attempt": episode.job.attempt,
        "success": end.success,
        "terminated": end.terminated,
        "ended": episode.ended,
        "requests": episode.requests,
        "prompt_tokens": episode.prompt_tokens,
        "completion_tokens": episode.completion_tokens,
        "invalid": episode.invalid,
        "errors": episode.errors,
        "metrics": episode.metrics,
        "prompt": list(episode.prompt),
        "turns": [
            [text, seen, action.reward]
            for (text, seen), (action, _) in zip(episode.texts, episode.turns, strict=True)
        ],
    }  # fmt: skip


def restored(entry: Mapping[str, Any], job: Job) -> Served:
    """The episode of `as_entry`, as ``job``. Raises what a wrong value raises."""
    episode = Served(job, Node(Kind.STATE, ()))
    for text, seen, reward in entry["turns"]:
        action, state = Node(Kind.ACTION, (), reward=float(reward)), Node(Kind.STATE, ())
        episode.turns.append((action, state))
        episode.texts.append((str(text), str(seen)))
    end = episode.end
    end.terminated, end.success = bool(entry["terminated"]), bool(entry["success"])
    end.truncated = not end.terminated
    system, user = entry["prompt"]
    episode.prompt, episode.ended = (system, user), str(entry["ended"])
    episode.requests, episode.invalid, episode.errors = (int(entry[k]) for k in ("requests", "invalid", "errors"))
    episode.prompt_tokens, episode.completion_tokens = int(entry["prompt_tokens"]), int(entry["completion_tokens"])
    episode.metrics = {str(name): float(value) for name, value in entry["metrics"].items()}
    return episode
