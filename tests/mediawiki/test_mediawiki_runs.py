"""Training on a real MediaWiki: a run, its replay without the wiki, and a run whose wiki dies and comes back."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mediawiki_cases import MediaWiki, free_port, kill, url_of
from run_cases import fingerprint, rows, training

pytestmark = pytest.mark.mediawiki
RUN = """
env: wiki
updates: 2
episodes: 8
minibatches: 2
eval_every: 0
test_tasks: 4
react: {max_action_tokens: 48, max_tokens: 1200}
envs: {processes: 1}
wiki: {train_worlds: 1, valid_worlds: 1, test_worlds: 1, max_turns: 6, max_hops: 2, spacing: 0, cache_days: 0,
  backend: live, patience: 3, api_url: "%s"}
pretrain:
  {flaw: 0.5, demonstrations: 300, steps: 300, drill_texts: 50, shape: {width: 64, mlp: 128}}
"""


@pytest.fixture(scope="module", autouse=True)
def own_folder(own_cache: None) -> Iterator[None]:
    yield


def episodes(folder: Path) -> list[str]:
    return sorted(line for line in (folder / "episodes.jsonl").read_text().splitlines())


def trained(folder: Path, url: str, *argv: str) -> Path:
    with training(folder, *argv, text=RUN % url) as run:
        run.run()
    return folder


def test_a_recorded_run_replays_bit_for_bit_without_the_wiki(tmp_path: Path, mediawiki: MediaWiki) -> None:
    tape, port = tmp_path / "tape.jsonl", free_port()
    with mediawiki.served(port):
        first = trained(tmp_path / "first", url_of(port), "--wiki.record", str(tape))
    assert len(tape.read_text().splitlines()) > 20
    again = trained(tmp_path / "again", url_of(port), "--wiki.replay", str(tape))
    assert rows(again) == rows(first) and fingerprint(again) == fingerprint(first)
    assert episodes(again) == episodes(first) and len(episodes(first)) >= 16
    update = [row for row in rows(first) if row["kind"] == "update"]
    assert len(update) == 2 and all(row["faults"] == 0 and row["turns"] > 1 for row in update)
    # A recording in which one page says something else gives another run.
    other = tmp_path / "other.jsonl"
    other.write_text("".join(map(_changed, tape.read_text().splitlines(keepends=True))))
    assert rows(trained(tmp_path / "changed", url_of(port), "--wiki.replay", str(other))) != rows(first)


def _changed(line: str) -> str:
    question, answer = json.loads(line)
    if json.loads(question)[0] != "page" if question.startswith("[") else True:
        return line
    title, aliases, lines = json.loads(answer)
    return json.dumps([question, json.dumps([title, aliases, [*lines[::-1]]])]) + "\n"


def test_a_run_goes_on_when_its_wiki_is_back(tmp_path: Path, mediawiki: MediaWiki) -> None:
    port = free_port()
    server = mediawiki.serve(port)
    log, servers = mediawiki.folder / f"server-{port}.log", [server]

    def outage() -> None:
        asked = _requests(log)
        while _requests(log) < asked + 4:  # in the middle of the first episodes
            time.sleep(0.02)
        kill(server)
        until = time.monotonic() + 120
        while not _faults(tmp_path / "run") and time.monotonic() < until:
            time.sleep(0.1)
        servers.append(mediawiki.serve(port))

    argv = ("--faults.retries", "0", "--faults.max-rate", "1", "--updates", "5")
    breaker = threading.Thread(target=outage)
    try:
        with training(tmp_path / "run", *argv, text=RUN % url_of(port)) as run:
            breaker.start()
            run.run()
    finally:
        if breaker.ident is not None:
            breaker.join()
        for one in servers:
            kill(one)
    update: list[Any] = [row for row in rows(tmp_path / "run") if row["kind"] == "update"]
    assert len(update) == 5 and update[-1]["faults"] == 0
    assert sum(row["faults"] for row in update) >= 1, "the outage was counted"


def _faults(run: Path) -> float:
    """Faults of the updates so far, which a row tells as soon as its update has ended."""
    metrics = run / "metrics.jsonl"
    lines = metrics.read_text().split("\n")[:-1] if metrics.exists() else []  # the last line may be half written
    return sum(row["faults"] for row in map(json.loads, lines) if row["kind"] == "update")


def _requests(log: Path) -> int:
    return log.read_text(errors="replace").count("Accepted") if log.exists() else 0
