"""What every backend of the wiki promises, on the pages of `wiki_cases`; a test file gives it a fixture ``wiki``."""

import pickle
from typing import Any

import numpy as np
import pytest
from wiki_cases import PAGES

from agent_envs.core import Task
from agent_envs.wiki.backend import WikiBackend
from agent_envs.wiki.config import WikiConfig
from agent_envs.wiki.env import WikiEnv
from agent_envs.wiki.tasks import Gold

PART = "contract-en"
TITLES = [page.title for page in PAGES]
NO_PAGES = [
    "", " ", "Nowhere", "Freedonia#Geography", "a|b", "Freedonia|Sylvania", "[[Freedonia]]", "x" * 300, "x" * 100_000,
    "Freedonia\x00", "\ud800", "../../etc/passwd", "/etc/passwd", "http://127.0.0.1/", "Special:Random", "File:X.png",
    "Talk:Freedonia", "<b>", "{{Freedonia}}", "~~~~", "%2e%2e%2f", "\u202eFreedonia.", "🙂" * 50,
]  # fmt: skip


class BackendContract:
    @pytest.mark.parametrize("page", PAGES, ids=TITLES)
    def test_pages_come_back_line_by_line(self, wiki: WikiBackend, page: Any) -> None:
        found = wiki.page(page.title, PART)
        assert found is not None and (found.title, found.lines) == (page.title, page.lines)
        assert found.shown == page.shown

    @pytest.mark.parametrize("title", TITLES)
    def test_titles_resolve_to_themselves(self, wiki: WikiBackend, title: str) -> None:
        assert wiki.resolve(title, PART) == title
        assert wiki.resolve(f"  {title.replace(' ', '_')} ", PART) == title

    @pytest.mark.parametrize(
        ("asked", "title"),
        [
            ("Old Freedonia", "Freedonia"), ("republic of Freedonia", "Freedonia"), ("费国", "费里多尼亚"),
            ("FREEDONIA", "Freedonia"), ("freedonia", "Freedonia"), ("Ｆｒｅｅｄｏｎｉａ", "Freedonia"),
            ("marx sea", "Marx Sea"), ("MARX   SEA", "Marx Sea"), ("freedonian_crown", "Freedonian crown"),
        ],
    )  # fmt: skip
    def test_redirects_and_other_spellings(self, wiki: WikiBackend, asked: str, title: str) -> None:
        assert wiki.resolve(asked, PART) == title
        assert wiki.page(asked, PART) is None or wiki.page(asked, PART).title == asked, "page takes true titles only"

    def test_other_names_of_a_page(self, wiki: WikiBackend) -> None:
        assert {"Old Freedonia", "Republic of Freedonia"} >= set(wiki.names("Freedonia", PART)) >= {"Old Freedonia"}
        assert not any(wiki.names(title, PART) for title in ("Sylvania", "Nowhere", "", "a|b", "\ud800", "x" * 100_000))

    @pytest.mark.parametrize("title", NO_PAGES)
    def test_what_is_no_page_is_none(self, wiki: WikiBackend, title: str) -> None:
        assert wiki.resolve(title, PART) is None and wiki.page(title, PART) is None

    def test_every_link_can_be_followed(self, wiki: WikiBackend) -> None:
        links = {link.title for title in TITLES for link in (wiki.page(title, PART) or pytest.fail(title)).links}
        assert len(links) >= 10 and all(wiki.resolve(title, PART) == title for title in links)

    @pytest.mark.parametrize(
        ("query", "title"),
        [
            ("planet", "Mercury (planet)"), ("climate mild", "Freedonia"), ("What is the population?", "Firefly City"),
            ("萤火城", "费里多尼亚"),
            ('"planet" +(mercury) year:* ~^', "Mercury (planet)"), ("CROWN", "Freedonian crown"),
        ],
    )  # fmt: skip
    def test_search_finds_the_page(self, wiki: WikiBackend, query: str, title: str) -> None:
        hits = wiki.search(query, PART, 10)
        assert title in [hit.title for hit in hits]
        assert {hit.title for hit in hits} <= {*TITLES, *(alias for page in PAGES for alias in page.aliases)}
        assert all("\n" not in hit.snippet and len(hit.snippet) <= 400 for hit in hits)

    def test_search_goes_on_where_it_ended(self, wiki: WikiBackend) -> None:
        together = [hit.title for hit in wiki.search("Freedonia", PART, 6)]
        apart = [hit.title for start in (0, 2, 4) for hit in wiki.search("Freedonia", PART, 2, start)]
        assert together == apart and len(set(together)) >= 4

    @pytest.mark.parametrize(
        "query", ["", "the of", "nothing of this kind anywhere", "\ud800\x00", "((((", '"' * 99, "~^*"]
    )
    def test_a_search_may_find_nothing(self, wiki: WikiBackend, query: str) -> None:
        assert wiki.search(query, PART) == wiki.search(query, PART)
        if "nothing" in query:
            assert not any(hit.title == "Freedonia" for hit in wiki.search(query, PART))

    @pytest.mark.parametrize(
        ("asked", "first"),
        [
            ("Freedonya", "Freedonia"),
            ("Marx See", "Marx Sea"),
            ("Firefly Cty", "Firefly City"),
            ("Sylvanla", "Sylvania"),
        ],
    )
    def test_similar_titles(self, wiki: WikiBackend, asked: str, first: str) -> None:
        assert wiki.similar(asked, PART)[0] == first
        assert len(wiki.similar(asked, PART, 2)) <= 2

    @pytest.mark.parametrize(
        "text", ["\ud800\udfff", "\x00", "🙂" * 5000, "a" * 100_000, "|||", '"(((', "\n\t", "ａｂ́"]
    )
    def test_any_text_is_a_question(self, wiki: WikiBackend, text: str) -> None:
        assert wiki.similar(text, PART) == wiki.similar(text, PART)
        assert wiki.search(text, PART) == wiki.search(text, PART)
        assert wiki.resolve(text, PART) is None

    def test_random_pages_follow_the_generator(self, wiki: WikiBackend) -> None:
        first, again = ([wiki.random(np.random.default_rng(seed), PART) for seed in range(12)] for _ in range(2))
        assert first == again and len(set(first)) > 1
        assert all(wiki.page(title, PART) is not None for title in first)

    def test_it_travels_as_its_settings(self, wiki: WikiBackend) -> None:
        data = pickle.dumps(wiki)
        assert len(data) < 2000 and pickle.loads(data).page("Sylvania", PART) == wiki.page("Sylvania", PART)

    def test_an_episode(self, wiki: WikiBackend) -> None:
        env = WikiEnv(WikiConfig(), wiki)
        gold = Gold(PART, (), "421733", ("421733",))
        env.reset(options={"task": Task("t", "test", "How many live in Freedonia's capital?", data=gold)})
        assert "[1] Freedonia is a country on the {1:Marx Sea}." in env.step("NAVIGATE(Old Freedonia)")[0]
        assert env.step("NAVIGATE(Freedonia#Economy)")[0].splitlines()[1] == "[7] ## Economy"
        assert "Firefly City" in env.step("CLICK(Firefly City)")[0]
        twin = env.fork()
        assert twin.backend is env.backend, "forks share the reader"
        assert env.step("SAVE_LINE_IDS(2)")[0] == "2: saved, 1 line"
        assert "no such page, similar pages: Freedonia" in env.step("NAVIGATE(Freedonya)")[0]
        *_, info = env.step("SUBMIT(421733)")
        assert info["success"] and twin.step("FIND(population)")[0] == "[2] population: 421733"
