"""Recordings: what was answered is answered again, without the wiki and whoever asked first."""

import json
import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wiki_cases import PAGES, page
from wiki_contract import PART, BackendContract

from agent_envs import BackendUnavailable, SettingsError
from agent_envs.core import Task
from agent_envs.wiki import store
from agent_envs.wiki.backend import WikiBackend
from agent_envs.wiki.config import WikiConfig
from agent_envs.wiki.env import WikiEnv
from agent_envs.wiki.index import IndexBackend
from agent_envs.wiki.recording import RecordedBackend


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> IndexBackend:
    folder = tmp_path_factory.mktemp("index")
    store.write(folder, [(PART, iter(PAGES))])
    return IndexBackend(folder)


@pytest.fixture(scope="module")
def wiki(index: IndexBackend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WikiBackend]:
    yield RecordedBackend(tmp_path_factory.mktemp("tape") / "tape.jsonl", index)


class TestRecording(BackendContract):
    pass


def asked(wiki: WikiBackend) -> list[Any]:
    rng = np.random.default_rng(3)
    return [
        wiki.resolve("old freedonia", PART), wiki.resolve("Nowhere", PART), wiki.page("Freedonia", PART),
        wiki.page("Nowhere", PART), wiki.search("planet", PART), wiki.search("planet", PART, 1, 1),
        wiki.similar("Freedonya", PART), wiki.random(rng, PART), float(rng.random()), wiki.fingerprint,
        wiki.resolve("\ud800", PART),
    ]  # fmt: skip


def test_a_replay_answers_alike_without_the_wiki(index: IndexBackend, tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    answers = asked(RecordedBackend(tape, index))
    replay = RecordedBackend(tape)
    assert asked(replay) == answers
    for missing in (lambda: replay.page("Sylvania", PART), lambda: replay.search("planet", PART, 2)):
        with pytest.raises(BackendUnavailable, match="has no answer to"):
            missing()


def test_what_is_recorded_is_not_asked_again(index: IndexBackend, tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    first = asked(RecordedBackend(tape, index))
    size = tape.stat().st_size

    class Changed(IndexBackend):
        def page(self, title: str, partition: str) -> Any:
            raise AssertionError("asked again")

    assert asked(RecordedBackend(tape, Changed(index.folder))) == first and tape.stat().st_size == size


def _record(tape: Path, folder: Path, own: str) -> None:
    class Own(IndexBackend):
        """A wiki that says something else to every process."""

        def page(self, title: str, partition: str) -> Any:
            return page(title, own)

    wiki = RecordedBackend(tape, Own(folder))
    read = [wiki.page(one.title, PART) for one in PAGES]
    again = RecordedBackend(tape)
    assert [again.page(one.title, PART) for one in PAGES] == read, "a process used what is in the file"


def test_processes_agree_on_the_first_answer(index: IndexBackend, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    tape = tmp_path / "tape.jsonl"
    writers = [context.Process(target=_record, args=(tape, index.folder, f"process {n}")) for n in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert len(tape.read_text().splitlines()) == 1 + len(PAGES), "one answer to each question"


def test_the_end_of_a_writer_that_died_is_cut_off(index: IndexBackend, tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    answers = asked(RecordedBackend(tape, index))
    whole = tape.read_bytes()
    tape.write_bytes(whole[:-40])
    assert asked(RecordedBackend(tape, index)) == answers and tape.read_bytes() == whole


@pytest.mark.parametrize(
    "text", ["", "hello\n", "[]\n", '["another kind", 1]\n', "[" * 5000 + "\n", '{"a": 1}\n', "\xff\n"]
)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, text: str) -> None:
    tape = tmp_path / "tape.jsonl"
    tape.write_bytes(text.encode("latin-1"))
    with pytest.raises((SettingsError, BackendUnavailable), match=r"tape.jsonl"):
        RecordedBackend(tape).prepare(["en"])


def test_a_missing_file_and_another_wiki_are_refused(index: IndexBackend, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"--wiki.replay .*No such file"):
        RecordedBackend(tmp_path / "nowhere").prepare(["en"])
    asked(RecordedBackend(tmp_path / "tape.jsonl", index))
    store.write((tmp_path / "other").mkdir() or tmp_path / "other", [(PART, iter(PAGES[:3]))])
    with pytest.raises(SettingsError, match="holds the answers of another wiki"):
        RecordedBackend(tmp_path / "tape.jsonl", IndexBackend(tmp_path / "other")).prepare(["en"])


def test_episodes_replay_bit_for_bit(tmp_path: Path) -> None:
    worlds = {"train_worlds": 2, "valid_worlds": 0, "test_worlds": 0}
    tape = str(tmp_path / "tape.jsonl")
    recorded = episodes(WikiEnv(WikiConfig(**worlds, record=tape)))
    assert recorded[1::2] == episodes(WikiEnv(WikiConfig(**worlds)))[1::2], "the wiki itself, but for random pages"
    assert recorded == episodes(WikiEnv(WikiConfig(**worlds, replay=tape)))
    lines = Path(tape).read_text().splitlines(keepends=True)
    Path(tape).write_text("".join(line for line in lines if not json.loads(line)[0].startswith('["page"')))
    with pytest.raises(BackendUnavailable, match="has no answer"):
        episodes(WikiEnv(WikiConfig(**worlds, replay=str(Path(tape).rename(tmp_path / "cut.jsonl")))))


def episodes(env: WikiEnv) -> list[Any]:
    seen: list[Any] = []
    for task in env.tasks("train")[:12]:
        assert isinstance(task, Task)
        env.reset(seed=0, options={"task": task})
        seen.append(env.drill(task, np.random.default_rng(0)))
        steps = [env.step(f"SEARCH({task.data.hops[0].title})")]
        while not env._over:
            steps.append(env.step(env.expert()))
        seen.append(steps)
    return seen
