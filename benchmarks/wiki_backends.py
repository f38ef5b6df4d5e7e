"""The backends of the wiki beside each other: steps a second, latency of a step, bytes from the wiki for a step.

    python scripts/mediawiki_xml.py > world.xml
    scripts/mediawiki.sh install wiki world.xml && scripts/mediawiki.sh serve wiki 8080 &
    python benchmarks/wiki_backends.py --api-url http://127.0.0.1:8080/w/api.php

Every backend holds the same three worlds, and the same episodes are played on each: those of the expert, with a search
and a misspelt title before each. `live` asks for everything once; `live, kept` finds it on the disk in a process that
knows nothing yet. The last column is the time of a step that is not the wiki's: the condition is that a live step takes
at most 1.2 times as long as the wiki's answers to it.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import numpy as np
import tyro
from rich.console import Console

from agent_envs.actions import render
from agent_envs.core import SPLITS
from agent_envs.wiki import store
from agent_envs.wiki.backend import WikiBackend
from agent_envs.wiki.config import WikiConfig
from agent_envs.wiki.env import WikiEnv
from agent_envs.wiki.index import IndexBackend
from agent_envs.wiki.live.backend import LiveBackend
from agent_envs.wiki.live.wire import Wire
from agent_envs.wiki.places import Backend, Place
from agent_envs.wiki.recording import RecordedBackend
from agent_envs.wiki.world import pages_of
from agent_envs.wiki.zim import ZimBackend
from benchmarks.timing import finish, print_table
from benchmarks.wiki_zim import write_zim
from runners.doctor import processor

ONE = WikiConfig(train_worlds=1, valid_worlds=1, test_worlds=1, max_turns=40)
MOST_SHARE = 1.2


@dataclass(frozen=True)
class WikiBackends:
    """Measure the backends of the wiki."""

    api_url: str
    """The api.php of a MediaWiki that holds the pages of scripts/mediawiki_xml.py."""
    tasks: int = 20
    """Episodes of each split."""
    out: Path = Path("benchmarks/results/wiki_backends.json")
    """File for the result."""


@dataclass
class Asked:
    """What came over the wire."""

    requests: int = 0
    seconds: float = 0.0
    bytes: int = 0


@dataclass(frozen=True)
class Figures:
    """What one backend took."""

    steps: int
    steps_per_s: float
    p50_ms: float
    p95_ms: float
    requests: int
    bytes_per_step: float
    share: float | None
    """Time of the steps that asked the wiki over the time of its answers; None where none was asked."""


@contextmanager
def counted() -> Iterator[Asked]:
    """Counts what `Wire` gets meanwhile."""
    asked = Asked()
    get = Wire.get

    def counting(self: Wire, params: dict[str, Any], deadline: float) -> Any:
        begin = time.perf_counter()
        answer = get(self, params, deadline)
        asked.seconds += time.perf_counter() - begin
        asked.requests += 1
        asked.bytes += len(json.dumps(answer, ensure_ascii=False).encode())
        return answer

    setattr(Wire, "get", counting)  # noqa: B010 (mypy would not have a method replaced)
    try:
        yield asked
    finally:
        setattr(Wire, "get", get)  # noqa: B010


def measure(wiki: WikiBackend, tasks: int) -> tuple[Figures, list[str]]:
    """The figures of one backend, and the answers to the expert's turns."""
    env = WikiEnv(ONE, wiki)
    wiki.prepare(ONE.languages)
    times, answers, asking = [], [], 0.0
    with counted() as asked:
        for task in chain.from_iterable(env.tasks(split)[:tasks] for split in SPLITS):
            env.reset(options={"task": task})
            title = task.data.hops[0].title
            before = [render("SEARCH", f"{task.data.hops[0].relation} {title}"), render("NAVIGATE", f"{title}a")]
            while not env._over:
                of_expert = not before
                action = env.expert() if of_expert else before.pop(0)
                requests, begin = asked.requests, time.perf_counter()
                text, *_ = env.step(action)
                times.append(time.perf_counter() - begin)
                asking += times[-1] if asked.requests > requests else 0.0
                answers += [text] if of_expert else []
    p50, p95 = np.percentile(times, [50, 95]) * 1000
    share = asking / asked.seconds if asked.requests else None
    speed = len(times) / sum(times)
    return Figures(len(times), speed, float(p50), float(p95), asked.requests, asked.bytes / len(times), share), answers


def backends(folder: Path, url: str) -> Iterator[tuple[str, WikiBackend]]:
    """Name and backend; the later ones find what the earlier ones left."""
    (folder / "index").mkdir()
    store.write(folder / "index", pages_of(ONE))
    pages = list(chain.from_iterable(found for _, found in pages_of(ONE)))
    place = Place(Backend.LIVE, api_url=url, spacing=0)
    yield "offline", IndexBackend(folder / "index")
    yield "zim", ZimBackend(Place(Backend.ZIM, str(write_zim(folder / "pages.zim", pages))))
    yield "live", RecordedBackend(folder / "tape.jsonl", LiveBackend(place))
    yield "live, kept", LiveBackend(place)
    yield "replay", RecordedBackend(folder / "tape.jsonl")


def main() -> None:
    settings = tyro.cli(WikiBackends)
    console = Console()
    result, first = {}, None
    with TemporaryDirectory() as folder:
        os.environ["TURNWISE_CACHE"] = folder  # an empty one
        for name, wiki in backends(Path(folder), settings.api_url):
            result[name], answers = measure(wiki, settings.tasks)
            first = answers if first is None else first
            if answers != first:
                sys.exit(f"error: {name} answers the expert differently: is it the wiki of scripts/mediawiki_xml.py?")
    columns = ("backend", "steps/s", "p50 ms", "p95 ms", "requests", "bytes a step", "times the wiki")
    rows = [
        (name, f"{row.steps_per_s:.0f}", f"{row.p50_ms:.2f}", f"{row.p95_ms:.2f}", row.requests,
         f"{row.bytes_per_step:.0f}", "-" if row.share is None else f"{row.share:.2f}")
        for name, row in result.items()
    ]  # fmt: skip
    print_table(f"{result['offline'].steps} steps of each backend", columns, rows, console)
    share = result["live"].share
    conditions = [
        (f"a live step takes at most {MOST_SHARE} times the wiki's answers to it", (share or 9) <= MOST_SHARE)
    ]
    whole = {"backends": {name: asdict(row) for name, row in result.items()}, "processor": next(processor()).text}
    sys.exit(finish(whole, conditions, settings.out, console))


if __name__ == "__main__":
    main()
