"""The offline backend: titles, search, spelling, partitions, order of ties, processes, files."""

import multiprocessing
import os
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agent_envs import BackendUnavailable, SettingsError
from agent_envs.cache import build_once
from agent_envs.wiki import store, tokens
from agent_envs.wiki.backend import Link, Page, PageLine
from agent_envs.wiki.config import WikiConfig
from agent_envs.wiki.corpus import backend_of, corpus_key
from agent_envs.wiki.index import IndexBackend


def page(title: str, *rows: str, aliases: tuple[str, ...] = ()) -> Page:
    return Page(title, tuple(PageLine(row) for row in rows), aliases)


CORPUS = {
    "one": [
        page("Bel Mora", "Bel Mora is a country.", "capital: Tor Vin", aliases=("贝尔莫拉", "Old Mora")),
        page("Tor Vin", "Tor Vin is a city.", "It lies on the rivers of Bel Mora."),
        page("Tor Vim", "Tor Vim is a city.", "mayor: Ana Kelt"),
        page("River (disambiguation)", "rivers"),
        page("C++", "a language"),
        page("Twin A", "same words here"),
        page("Twin B", "same words here"),
    ],
    "two": [
        page("贝尔莫拉", "贝尔莫拉是国家。", "首都: 托尔文", aliases=("Bel Mora",)),
        page("托尔文", "托尔文是城市，在贝尔莫拉。"),
        page("托尔维", "托尔维是城市。"),
        page("Tor Vin", "another Tor Vin"),
    ],
    "empty": [],
}


@pytest.fixture(scope="module")
def wiki(tmp_path_factory: pytest.TempPathFactory) -> IndexBackend:
    folder = tmp_path_factory.mktemp("wiki")
    store.write(folder, ((name, iter(pages)) for name, pages in CORPUS.items()))
    return IndexBackend(folder)


@pytest.mark.parametrize(
    ("title", "want"),
    [
        ("Bel Mora", "Bel Mora"),
        ("bel_mora", "Bel Mora"), ("  BEL   MORA ", "Bel Mora"), ("Ｂｅｌ Mora", "Bel Mora"),
        ("贝尔莫拉", "Bel Mora"), ("old mora", "Bel Mora"), ("c++", "C++"),
        ("River (disambiguation)", "River (disambiguation)"),
        ("BelMora", None), ("", None), ("托尔文", None), ("\ud800", None),
        ("x" * 100_000, None), ("Bel Mora\x00", None),
    ],
)  # fmt: skip
def test_resolve(wiki: IndexBackend, title: str, want: str | None) -> None:
    assert wiki.resolve(title, "one") == want


def test_pages_come_back_as_they_went_in(wiki: IndexBackend) -> None:
    for name, pages in CORPUS.items():
        for wanted in pages:
            assert wiki.page(wanted.title, name) == wanted
    assert wiki.page("bel mora", "one") is None, "page takes true titles only"


def test_links_and_headings_survive_the_store() -> None:
    before = Page("T", (PageLine("a b", (Link(0, 1, "X"), Link(2, 3, "Y"))), PageLine("Part", level=2)), ("U",))
    assert store.load(store.dump(before)) == before
    assert before.shown == ("[1] {1:a} {2:b}", "[2] ## Part")


@pytest.mark.parametrize(
    ("query", "partition", "want"),
    [
        ("capital", "one", ["Bel Mora"]),
        ("tor vin", "one", ["Tor Vin", "Tor Vim", "Bel Mora"]),
        ("river", "one", ["River (disambiguation)", "Tor Vin"]),
        ("who is the mayor of", "one", ["Tor Vim"]),
        ("首都", "two", ["贝尔莫拉"]),
        ("城市", "two", ["托尔维", "托尔文"]),
        ("贝尔莫拉", "two", ["贝尔莫拉", "托尔文", "托尔维"]),
        ("the of", "one", []),
        ("的", "two", []),
        ("capital", "two", []),
        ("", "one", []),
        ("capital", "empty", []),
        ('title:"x" AND (NOT body:*) capital^9', "one", ["Bel Mora"]),
        ("0|capital 1|capital", "one", ["Bel Mora"]),
    ],
)
def test_search(wiki: IndexBackend, query: str, partition: str, want: list[str]) -> None:
    assert [hit.title for hit in wiki.search(query, partition)] == want


def test_ties_go_to_the_lower_page_also_across_the_cut(wiki: IndexBackend, tmp_path: Path) -> None:
    hits = wiki.search("same words", "one")
    assert [hit.title for hit in hits] == ["Twin A", "Twin B"] and hits[0].score == hits[1].score
    many = [page(f"Page {number:03d}", "equal text") for number in range(300)]
    store.write(tmp_path, [("p", iter(many))])
    backend = IndexBackend(tmp_path)
    found = [hit.title for start in range(0, 300, 7) for hit in backend.search("equal", "p", 7, start)]
    assert found == [one.title for one in many]


def test_snippet_is_the_line_that_holds_most_of_the_query(wiki: IndexBackend) -> None:
    assert wiki.search("mayor Ana", "one")[0].snippet == "mayor: Ana Kelt"
    assert wiki.search("首都", "two")[0].snippet == "首都: 托尔文"


@pytest.mark.parametrize(
    ("title", "partition", "first"),
    [
        ("Bel Mara", "one", "Bel Mora"), ("tor vln", "one", "Tor Vin"), ("BelMora", "one", "Bel Mora"),
        ("托尔", "two", "托尔文"), ("贝尔摩拉", "two", "贝尔莫拉"), ("Rivers", "one", "River (disambiguation)"),
    ],
)  # fmt: skip
def test_similar_titles(wiki: IndexBackend, title: str, partition: str, first: str) -> None:
    assert wiki.similar(title, partition)[0] == first
    assert len(wiki.similar(title, partition, 2)) <= 2


def test_no_question_sees_another_partition(wiki: IndexBackend) -> None:
    rng = np.random.default_rng(0)
    for name, pages in CORPUS.items():
        titles = {one.title for one in pages}
        for text in ("Tor Vin", "贝尔莫拉", "city country", "城市"):
            assert {hit.title for hit in wiki.search(text, name, 50)} <= titles
            assert set(wiki.similar(text, name, 50)) <= titles
        assert not titles or {wiki.random(rng, name) for _ in range(99)} == titles
    with pytest.raises(BackendUnavailable, match="no partition 'three'"):
        wiki.search("x", "three")


@pytest.mark.parametrize("text", ["\ud800\udfff", "\x00", "🙂" * 5000, "a" * 100_000, "|||", '"(((', "\n\t", "ａｂ́"])
def test_any_text_is_a_query(wiki: IndexBackend, text: str) -> None:
    assert wiki.search(text, "one") == wiki.search(text, "one")
    assert wiki.similar(text, "one") == wiki.similar(text, "one")
    assert wiki.resolve(text, "one") is None


def test_tokens() -> None:
    assert tokens.tokenise("The Cities of Bel-Mora's rivers, 1,534!") == ["city", "bel", "mora", "river", "1", "534"]
    assert tokens.tokenise("首都ABC的河") == ["首", "都", "首都", "abc", "河", "的河"]
    assert tokens.tokenise("ＦＵＬＬ　width glass bus") == ["full", "width", "glass", "bus"]
    assert tokens.grams("Ab c") == ["__a", "_ab", "ab_", "b_c", "_c_"]


def _probe(backend: IndexBackend, out: object) -> None:
    hits = backend.search("tor vin", "one"), backend.similar("Bel Mara", "one"), backend.page("Bel Mora", "one")
    out.put((hits, backend.fingerprint))  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_other_processes_get_the_same_answers(wiki: IndexBackend, method: str) -> None:
    wiki.search("tor", "one")  # open it here first: a forked process must not use these files
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=_probe, args=(wiki, queue))
    process.start()
    answer = queue.get(timeout=60)
    process.join()
    here = (wiki.search("tor vin", "one"), wiki.similar("Bel Mara", "one"), wiki.page("Bel Mora", "one"))
    assert answer == (here, wiki.fingerprint)
    assert len(pickle.dumps(wiki)) < 1000


def test_building_twice_gives_equal_files_and_other_text_another_fingerprint(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    for folder, title in zip(folders, ("X", "X", "Y"), strict=True):
        folder.mkdir()
        store.write(folder, [("p", iter([page(title, "text")]))])
    one, same, other = (IndexBackend(folder).fingerprint for folder in folders)
    assert one == same != other


def test_two_pages_of_one_title_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="same title"):
        store.write(tmp_path, [("p", iter([page("A b"), page("a_B")]))])


def test_failures_are_not_observations(tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailable, match="cannot open the wiki"):
        IndexBackend(tmp_path / "nowhere").search("x", "one")


def test_cache_is_built_once_and_complete(tmp_path: Path) -> None:
    built: list[Path] = []

    def build(folder: Path) -> None:
        built.append(folder)
        (folder / "data").write_text("x")

    place = tmp_path / "deep" / "place"
    assert build_once(place, build) == build_once(place, build) == place
    assert len(built) == 1 and (place / "data").read_text() == "x"
    assert sorted(path.name for path in place.parent.iterdir()) == ["place", "place.lock"]


def test_a_builder_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        build_once(tmp_path / "place", fail)
    assert [path.name for path in tmp_path.iterdir()] == ["place.lock"]


def _build_and_note(place: Path, notes: Path) -> None:
    def build(folder: Path) -> None:
        (notes / f"{os.getpid()}").touch()
        (folder / "data").write_text("x" * 100_000)

    build_once(place, build)
    assert len((place / "data").read_text()) == 100_000


def test_what_a_killed_builder_left_is_removed_by_the_next(tmp_path: Path) -> None:
    left, others = tmp_path / "place.tmp-1", tmp_path / "place-2.tmp-1"
    for folder in (left, others):
        folder.mkdir()
        (folder / "half").write_text("")
    build_once(tmp_path / "place", lambda folder: None)
    assert not left.exists() and others.exists()


def test_concurrent_builders_build_once(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    context = multiprocessing.get_context("spawn")
    builders = [context.Process(target=_build_and_note, args=(tmp_path / "c" / "p", notes)) for _ in range(3)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join()
    assert [builder.exitcode for builder in builders] == [0, 0, 0]
    assert len(list(notes.iterdir())) == 1


def test_an_unwritable_cache_gets_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("TURNWISE_CACHE", str(blocked))
    with pytest.raises(SettingsError, match=r"cannot write the cache .*: set TURNWISE_CACHE to a writable folder"):
        backend_of(WikiConfig(train_worlds=1))


def test_only_settings_that_shape_the_corpus_rebuild_it() -> None:
    key = corpus_key(WikiConfig())
    assert corpus_key(WikiConfig(max_turns=5, questions=3, max_hops=2)) == key
    assert len({corpus_key(WikiConfig(seed=seed, pages=pages)) for seed in (0, 1) for pages in (20, 40)}) == 4


def test_settings_of_the_same_pages_share_one_opened_corpus(small: WikiConfig) -> None:
    opened = backend_of(small)
    assert backend_of(replace(small, max_turns=5, max_hops=2)) is opened
    assert backend_of(replace(small, seed=1)) is not opened
