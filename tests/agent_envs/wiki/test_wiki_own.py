"""Questions made of a wiki's own pages: their contract on `geo`, a ZIM file and a live wiki, and what is refused."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from mediawiki_twin import twin_of
from wiki_cases import PAGES, page
from wiki_own_contract import ODD, OwnContract, all_tasks, assert_apart

from agent_envs import SettingsError
from agent_envs.contract.check import check_text_env
from agent_envs.core import BackendUnavailable
from agent_envs.wiki.backend import Page, WikiBackend
from agent_envs.wiki.config import Corpus, WikiConfig
from agent_envs.wiki.env import WikiEnv
from agent_envs.wiki.own import questions
from agent_envs.wiki.own.facts import facts_of
from agent_envs.wiki.own.walk import Reading, Walk
from agent_envs.wiki.places import Backend
from agent_envs.wiki.world import build_world
from benchmarks.wiki_zim import item, write_zim

WORLD = build_world(0, "train", 0, 40)
FACTS: tuple[Page, ...] = (*(WORLD.page(at, "en") for at in range(40)), *ODD, *PAGES)


def prose(count: int) -> list[Page]:
    """Pages of sentences with links."""
    rng = Random(0)
    names = [f"Place {number}" for number in range(count)]
    rows = [[f"It lies near [[{other}]]." for other in rng.sample(names, 4)] for _ in names]
    return [page(name, f"{name} is a place.", *lines) for name, lines in zip(names, rows, strict=True)]


def zim(folder: Path, pages: list[Page] | tuple[Page, ...], crawl: int = 200, **settings: object) -> WikiConfig:
    pytest.importorskip("libzim", reason="needs the extra zim")
    file = folder / "wiki.zim"
    if not file.exists():
        write_zim(file, pages)
    return WikiConfig(Backend.ZIM, str(file), crawl=crawl, questions=8, **settings)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which one file of `FACTS` is written once."""
    return tmp_path_factory.mktemp("zim")


@pytest.fixture
def odd() -> bool:
    return True


class TestZim(OwnContract):
    @pytest.fixture(scope="class")
    @classmethod
    def own(cls, shared: Path) -> WikiConfig:
        return zim(shared, FACTS)


class TestLive(OwnContract):
    @pytest.fixture(scope="class")
    @classmethod
    def own(cls) -> Iterator[WikiConfig]:
        pytest.importorskip("wikipediaapi", reason="needs the extra wikipedia")
        with twin_of(FACTS) as twin:
            yield WikiConfig(Backend.LIVE, api_url=twin.url, spacing=0, crawl=200, questions=8)


class TestGeo(OwnContract):
    @pytest.fixture
    def odd(self) -> bool:
        return False

    @pytest.fixture(scope="class")
    @classmethod
    def own(cls) -> WikiConfig:
        for name in ("babel", "countryinfo", "pycountry"):
            pytest.importorskip(name, reason="needs the extra geo")
        return WikiConfig(corpus=Corpus.GEO, crawl=300, questions=4)


class TestProse(OwnContract):
    """A wiki without facts: questions about the one link that two pages share."""

    @pytest.fixture
    def odd(self) -> bool:
        return False

    @pytest.fixture(scope="class")
    @classmethod
    def own(cls, tmp_path_factory: pytest.TempPathFactory) -> WikiConfig:
        return zim(tmp_path_factory.mktemp("zim"), prose(120))

    def test_they_share_one_link(self, own: WikiConfig) -> None:
        backend = WikiEnv(own).backend
        for task in all_tasks(own)["train"]:
            one, other = (backend.page(hop.title, "en") for hop in task.data.hops)
            assert one is not None and other is not None and task.level == 2
            shared = {link.title for link in one.links} & {link.title for link in other.links}
            assert shared == {task.data.answer} and f'"{one.title}" and "{other.title}"' in task.prompt


def test_the_environment_keeps_its_contract(shared: Path) -> None:
    config = zim(shared, FACTS, evidence=0.5)
    check_text_env(WikiEnv(config), tasks=1)
    env = WikiEnv(config)
    task = env.tasks("train")[0]
    text, exercises = env.drill(task, env.np_random) or pytest.fail("no drill")
    assert text.splitlines()[0].rpartition(" (")[0] in [hop.title for hop in task.data.hops] and exercises


def test_an_infobox_states_facts(tmp_path: Path) -> None:
    rows = [("Capital", "<a href='B'>B</a>"), ("Area", "12 km²"), ("Languages", "<a href='A'>A</a>; <a href='B'>B</a>")]
    table = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in rows)
    further = [item(name, name, f"<table class='infobox'>{table}</table><p>Text.</p>") for name in ("A", "B")]
    pytest.importorskip("libzim", reason="needs the extra zim")
    config = WikiConfig(Backend.ZIM, str(write_zim(tmp_path / "wiki.zim", PAGES, further=further)), crawl=100)
    found = WikiEnv(config).backend.page("A", "en")
    assert found is not None
    assert [(fact.relation, fact.value, fact.target) for fact in facts_of(found, 40)] == [
        ("Capital", "B", "B"), ("Area", "12 km²", None),
    ]  # fmt: skip


def test_facts_lie_on_lines_that_are_shown_and_are_stated_once() -> None:
    rows = [f"fact {'abcdefgh'[number]}: {number}" for number in range(8)]
    assert [fact.line for fact in facts_of(page("A", *rows), 3)] == [1, 2, 3]
    assert [fact.line for fact in facts_of(page("A", *rows, "Fact A: again"), 3)] == [2, 3], "also below what is shown"
    sentences = (
        "== Facts: all",
        "He said: no",
        "a b c d e f: g",
        "12: 13",
        "x: a; b",
        "y: [[A]] and [[B]]",
        "z: [[A]], b",
    )
    assert [fact.relation for fact in facts_of(page("A", *sentences), 40)] == ["He said"]


def test_the_check_of_splits_can_fail(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = zim(shared, FACTS)
    assert_apart(config)
    rng = Random(0)
    monkeypatch.setattr(questions, "split_of", lambda *_: rng.choice(["train", "train", "valid", "test"]))
    monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path / "other"))
    with pytest.raises(AssertionError):
        assert_apart(replace(config, skill=0.7))


def test_pages_that_fail_are_left_out_until_the_wiki_counts_as_down(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = WikiEnv(zim(shared, FACTS)).backend
    reading = Reading(200, 4, (), lambda page: len(page.lines))
    read = type(backend).page
    bad = {"Bo", "Ana"}

    def failing(self: WikiBackend, title: str, partition: str) -> Page | None:
        if title in bad or not bad:
            raise BackendUnavailable(f"no {title}")
        return read(self, title, partition)

    monkeypatch.setattr(type(backend), "page", failing)
    known = Walk(backend, "en", reading, np.random.default_rng(0)).run()
    assert len(known.pages) > 40 and not bad & set(known.pages)
    bad.clear()
    with pytest.raises(BackendUnavailable):
        Walk(backend, "en", reading, np.random.default_rng(0)).run()


def test_the_flawed_demonstrator_is_wrong_on_relations_that_nobody_knew(shared: Path) -> None:
    rows = [
        page(f"Ship {at}", f"captain: [[Sailor {at}]]", f"owner: [[Sailor {at + 1}]]", f"crew: {at}", f"guns: {at + 1}")
        for at in range(40)
    ]
    rows += [page(f"Sailor {at}", f"ship: [[Ship {at % 40}]]", f"wages: {at}") for at in range(41)]
    (shared / "ships").mkdir()
    env, won = WikiEnv(zim(shared / "ships", rows, crawl=81, max_hops=2)), {0.0: 0, 0.65: 0}
    tasks, rng = env.tasks("train")[:60], np.random.default_rng(0)
    for flaw in won:
        for task in tasks:
            env.reset(options={"task": task})
            while not env._over:
                *_, info = env.step(env.expert(flaw=flaw, rng=rng))
            won[flaw] += bool(info["success"])
    assert won[0.0] == 60 and 6 < won[0.65] < 54


def test_other_names_of_the_answer_are_accepted(shared: Path) -> None:
    tasks = [task for found in all_tasks(zim(shared, FACTS)).values() for task in found]
    named = {task.data.answer: task.data.accepted for task in tasks if task.data.answer in [one.title for one in FACTS]}
    aliases = {one.title: one.aliases for one in FACTS if one.aliases}
    assert set(named) & set(aliases)
    assert all(set(accepted) >= {title, *aliases.get(title, ())} for title, accepted in named.items())


def test_walks_from_given_pages(tmp_path: Path) -> None:
    far = [page("Alone", "country: [[Far]]", "founded: 7"), page("Far", "mayor: [[Alone]]")]
    config = zim(tmp_path, (*FACTS, *far), starts=(WORLD.page(0, "en").title,))
    tasks = [task for found in all_tasks(config).values() for task in found]
    assert tasks and not any("Alone" in task.prompt for task in tasks)
    assert any("Alone" in task.prompt for found in all_tasks(replace(config, starts=())).values() for task in found)
    with pytest.raises(SettingsError, match="no page 'Nowhere'"):
        WikiEnv(replace(config, starts=("Nowhere",))).tasks("train")


def test_a_live_wiki_is_read_once_and_within_the_bound() -> None:
    pytest.importorskip("wikipediaapi", reason="needs the extra wikipedia")
    with twin_of(FACTS) as twin:
        config = WikiConfig(Backend.LIVE, api_url=twin.url, spacing=0, crawl=30, questions=8)
        env = WikiEnv(config)
        env.prepare()
        asked = [one for one in twin.asked if one["action"] == "parse"]
        names = [one for one in twin.asked if one.get("prop") == "redirects"]
        draws = [one for one in twin.asked if one.get("list") == "allpages"]
        assert len(asked) == 30 and len(names) <= 30 and len(draws) <= 30 + 50
        before = len(twin.asked)
        again = WikiEnv(replace(config, max_turns=9))
        again.prepare()
        assert list(again.tasks("train")) == list(env.tasks("train")) and len(twin.asked) == before
        # The wiki changes, and what the cache kept of it is over.
        twin.pages = {title: page(title, "Nothing is left.") for title in twin.pages}
        with pytest.raises(SettingsError, match=r"the wiki changed since .* by deleting /"):
            WikiEnv(replace(config, cache_days=0)).prepare()


def test_another_file_is_refused(tmp_path: Path) -> None:
    config = zim(tmp_path, FACTS)
    WikiEnv(config).prepare()
    Path(config.path).unlink()
    write_zim(Path(config.path), FACTS)
    from agent_envs.wiki import corpus

    corpus._placed.cache_clear()
    with pytest.raises(SettingsError, match=r"another wiki than the one .* by deleting /"):
        WikiEnv(config).prepare()


def test_a_recording_holds_the_questions(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tape = str(tmp_path / "tape.jsonl")
    config = zim(shared, FACTS)
    recorded = WikiEnv(replace(config, record=tape))
    recorded.prepare()
    monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path / "empty"))
    replayed = WikiEnv(replace(config, replay=tape))
    replayed.prepare()
    assert list(replayed.tasks("test")) == list(recorded.tasks("test"))
    with pytest.raises(BackendUnavailable, match="no answer"):
        WikiEnv(replace(config, replay=tape, seed=1)).prepare()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"crawl": 10}, "live or zim, or corpus geo"),
        ({"crawl": 10, "corpus": Corpus.GEO, "pages": 30}, "pages does not act with crawl"),
        ({"crawl": 10, "corpus": Corpus.GEO, "source": "x.jsonl"}, "leave out one"),
        ({"starts": ("A",)}, "set crawl"),
        ({"crawl": -1}, "crawl must be from 0"),
    ],
)
def test_settings_that_cannot_act(settings: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        WikiConfig(**settings)


def test_too_few_questions(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"18 pages .* too few questions .* raise crawl"):
        WikiEnv(zim(tmp_path, PAGES)).prepare()
