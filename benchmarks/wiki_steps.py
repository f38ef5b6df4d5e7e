"""The speed of the wiki environment on one wiki of many thousand pages.

Invariant: an episode is ten turns of one fixed pattern, so the mix is exact (40 % NAVIGATE of which a quarter misses,
30 % SEARCH, 10 % each FIND, SAVE, CLICK) and every turn finds what it acts on; titles and queries are drawn evenly from
the whole wiki, so that caches help as little as they can.
"""

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from agent_envs.actions import render
from agent_envs.core import Task
from agent_envs.wiki import store
from agent_envs.wiki.backend import Link, Page, PageLine
from agent_envs.wiki.config import WikiConfig
from agent_envs.wiki.env import WikiEnv
from agent_envs.wiki.index import IndexBackend
from agent_envs.wiki.names import parts
from agent_envs.wiki.relations import RELATIONS
from agent_envs.wiki.tasks import Gold

PATTERN = ("open", "FIND", "SEARCH", "CLICK", "SAVE_LINE_IDS", "open", "SEARCH", "miss", "open", "SEARCH")
"""One episode; "open" and "miss" are NAVIGATE with a right and with a misspelt title."""
REPLY = {"open": " links)\n", "miss": "no such page, similar pages: ", "FIND": "[", "SEARCH": "results 1-5",
         "CLICK": " links)\n", "SAVE_LINE_IDS": "2-3: saved, 2 lines"}  # fmt: skip
"""What the answer to each kind of turn must hold."""
PARTITION = "wiki"


def titles(pages: int) -> list[str]:
    """Distinct names of three parts, as ``Fena Huno Soto``."""
    first, second = parts("en")
    names = [f"{a} {b} {c}" for a in first for b in second for c in second]
    return random.Random("titles").sample(names, pages)


def write_wiki(folder: Path, pages: int) -> IndexBackend:
    """A wiki of ``pages`` pages in one partition: a sentence, five facts that link on, and a number, on each."""
    names = titles(pages)
    rng = random.Random("pages")

    def page(name: str) -> Page:
        lines = [PageLine(f"{name} is a person.")]
        for relation in rng.sample(sorted(RELATIONS), 5):
            head, other = f"{relation}: ", rng.choice(names)
            lines.append(PageLine(head + other, (Link(len(head), len(head) + len(other), other),)))
        lines.append(PageLine(f"born: {rng.randint(1900, 1999)}"))
        return Page(name, tuple(lines))

    store.write(folder, [(PARTITION, map(page, names))])
    return IndexBackend(folder)


def environment(backend: IndexBackend) -> WikiEnv:
    """The wiki environment with its default settings on that backend."""
    return WikiEnv(WikiConfig(), backend)


def task() -> Task:
    """Its question is never answered: only the way there is timed."""
    return Task("speed", "train", "?", data=Gold(PARTITION, (), "", ("nobody",)))


def misspelt(title: str, rng: random.Random) -> str:
    """The title with one letter missing; never a title itself, because all parts of names have four letters."""
    at = rng.randrange(1, len(title) - 1)
    return title[:at] + title[at + 1 :]


def query(names: Sequence[str], rng: random.Random) -> str:
    """A relation and two parts of a name, as an agent would look for the page that links there."""
    return f"{rng.choice(sorted(RELATIONS))} {rng.choice(names).rpartition(' ')[0]}"


def episodes(names: Sequence[str], count: int, seed: int) -> list[list[tuple[str, str]]]:
    """(kind, text of the turn) of the turns of ``count`` episodes."""
    rng = random.Random(f"episodes {seed}")

    def turn(kind: str) -> tuple[str, str]:
        if kind in ("open", "miss"):
            name = rng.choice(names)
            return kind, render("NAVIGATE", name if kind == "open" else misspelt(name, rng), "a thought before it")
        args = {
            "SEARCH": lambda: query(names, rng),
            "CLICK": lambda: str(rng.randint(1, 5)),
            "FIND": lambda: "born",
            "SAVE_LINE_IDS": lambda: "2-3",
        }
        return kind, render(kind, args[kind](), "a thought before it")

    return [[turn(kind) for kind in PATTERN] for _ in range(count)]


def play(env: WikiEnv, todo: Sequence[Sequence[tuple[str, str]]]) -> None:
    """Plays the episodes; nothing is looked at."""
    start = {"task": task()}
    for turns in todo:
        env.reset(seed=0, options=start)
        for _, text in turns:
            env.step(text)


def answered(env: WikiEnv, todo: Sequence[Sequence[tuple[str, str]]]) -> Counter[str]:
    """How many turns of each kind were answered in the way that this kind is meant to be."""
    counts: Counter[str] = Counter()
    for turns in todo:
        env.reset(seed=0, options={"task": task()})
        for kind, text in turns:
            counts[kind] += REPLY[kind] in env.step(text)[0]
    return counts


def calls(names: Sequence[str], what: str, count: int, seed: int) -> Iterator[str]:
    """Arguments for ``count`` calls of the backend's ``search`` or ``similar``."""
    rng = random.Random(f"{what} {seed}")
    for _ in range(count):
        yield query(names, rng) if what == "search" else misspelt(rng.choice(names), rng)


def latencies(backend: IndexBackend, what: str, arguments: Sequence[str]) -> dict[str, float]:
    """Milliseconds of single calls: median and 95th percentile of thread time, and the latter of wall time."""
    call = getattr(backend, what)
    times = []
    for argument in arguments:
        wall, own = time.perf_counter(), time.thread_time()
        call(argument, PARTITION)
        times.append((time.thread_time() - own, time.perf_counter() - wall))
    own_N, wall_N = 1000 * np.array(times).T
    return {
        "p50_ms": float(np.percentile(own_N, 50)),
        "p95_ms": float(np.percentile(own_N, 95)),
        "wall_p95_ms": float(np.percentile(wall_N, 95)),
    }
