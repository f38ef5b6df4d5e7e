"""Facts of the real world: sources and corrections, unique answers by an independent query over the pages, splits."""

import builtins
import re
from collections import Counter
from typing import Any

import pytest

from agent_envs import SettingsError
from agent_envs.contract.check import check_text_env
from agent_envs.core import Task
from agent_envs.wiki.config import LANGUAGES, Corpus, WikiConfig
from agent_envs.wiki.env import WikiEnv
from agent_envs.wiki.geo import facts as geo_facts
from agent_envs.wiki.geo.pages import geo_wiki, pages_of
from agent_envs.wiki.geo.questions import geo_tasks, split_of
from agent_envs.wiki.tokens import fold

pytest.importorskip("babel")
pytest.importorskip("countryinfo")
pytest.importorskip("pycountry")

CONFIG = WikiConfig(corpus=Corpus.GEO, languages=LANGUAGES)
SPLITS = ("train", "valid", "test")
Table = dict[str, dict[str, list[str]]]


@pytest.fixture(scope="module")
def tables() -> dict[str, Table]:
    """Language → title → relation → values, read off the text of the pages."""
    out: dict[str, Table] = {}
    for partition, pages in pages_of(("en", "zh")):
        table = out.setdefault(partition.removeprefix("geo-"), {})
        for page in pages:
            rows = [line.text.partition(": ") for line in page.lines[1:]]
            table[page.title] = {relation: values.split("; ") for relation, _, values in rows}
    return out


def test_corrections(tables: dict[str, Table]) -> None:
    en, zh = tables["en"], tables["zh"]
    assert en["Kazakhstan"]["capital"] == ["Astana"] and zh["哈萨克斯坦"]["首都"] == ["阿斯塔纳"]
    assert en["Croatia"]["currency"] == en["Bulgaria"]["currency"] == ["Euro"]
    assert en["Eswatini"]["capital"] == ["Mbabane"]
    assert "Kosovo" not in en and "Netherlands Antilles" not in en
    assert {title for title in en if title.startswith("Kingston")} == {
        "Kingston (Jamaica)",
        "Kingston (Norfolk Island)",
    }
    assert en["Singapore"]["capital"] == ["Singapore (city)"] and en["Singapore (city)"] == {
        "capital of": ["Singapore"]
    }
    assert "India" not in en["Afghanistan"]["neighbours"] and "India" in en["Myanmar (Burma)"]["neighbours"]


def test_borders_are_mutual_and_titles_parallel_and_unique(tables: dict[str, Table]) -> None:
    for language, word in (("en", "neighbours"), ("zh", "邻国")):
        table = tables[language]
        assert len({fold(title) for title in table}) == len(table) > 700
        for title, rows in table.items():
            for other in rows.get(word, []):
                assert title in table[other][word], (title, other)
    assert [len(rows) for rows in tables["en"].values()] == [len(rows) for rows in tables["zh"].values()]


def test_every_link_has_a_page() -> None:
    for language in ("en", "zh"):
        wiki = geo_wiki(language)
        for key in wiki.facts:
            page = wiki.page(key)
            assert all(link.title in wiki.titles.values() for link in page.links)
            assert all(line.text[link.start : link.end] == link.title for line in page.lines for link in line.links)


def countries(prompt: str, table: Table) -> tuple[str, list[str]]:
    """(asked relation, every country that the question can mean), from the English text alone."""
    found = re.fullmatch(r"What is the (.+?) of (.+)\?", prompt)
    assert found is not None, prompt
    relation, subject = found.groups()
    real = {
        title: rows
        for title, rows in table.items()
        if "calling code" in rows or "internet domain" in rows or len(rows) > 2
    }

    def near(title: str) -> list[str]:
        return table[title].get("neighbours", [])

    def meant(subject: str) -> list[str]:
        if subject in table:
            return [subject]
        if hit := re.fullmatch(r"the country whose capital is (.+)", subject):
            return [title for title, rows in real.items() if rows.get("capital") == [hit[1]]]
        if hit := re.fullmatch(r"the only neighbour of (.+)", subject):
            return [other for start in meant(hit[1]) for other in near(start)]
        if hit := re.fullmatch(r"the only country that borders both (.+?) and (.+)", subject):
            pairs = [hit.groups()]
            if not all(name in table for name in pairs[0]):  # an "and" inside a name
                words = subject.removeprefix("the only country that borders both ").split(" and ")
                cuts = [(" and ".join(words[:at]), " and ".join(words[at:])) for at in range(1, len(words))]
                pairs = [cut for cut in cuts if all(name in table for name in cut)]
            return [title for one, other in pairs for title in real if title in near(one) and title in near(other)]
        if hit := re.fullmatch(r"the only country where (.+) is official", subject):
            return [title for title, rows in real.items() if hit[1] in rows.get("official language", [])]
        if hit := re.fullmatch(r"the only country that uses the (.+)", subject):
            return [title for title, rows in real.items() if hit[1] in rows.get("currency", [])]
        hit = re.fullmatch(r"the neighbour of (.+) with the (largest|smallest) (population|area)", subject)
        assert hit is not None, subject
        row = "population" if hit[3] == "population" else "area in km²"
        sizes = {other: float(table[other][row][0]) for other in near(hit[1])}
        edge = (max if hit[2] == "largest" else min)(sizes.values())
        return [other for other, size in sizes.items() if size == edge]

    return relation, meant(subject)


@pytest.mark.parametrize("split", SPLITS)
def test_each_question_executed_on_the_pages_has_exactly_its_answer(split: str, tables: dict[str, Table]) -> None:
    for task in geo_tasks(CONFIG, split):
        if task.language == "en":
            relation, found = countries(task.prompt, tables["en"])
            assert len(found) == 1, task.prompt
            assert tables["en"][found[0]][relation] == [task.data.answer], task.prompt


def test_questions_are_many_and_parallel() -> None:
    tasks = {split: list(geo_tasks(CONFIG, split)) for split in SPLITS}
    assert sum(map(len, tasks.values())) > 10_000
    assert set(Counter(task.level for task in tasks["train"])) == {1, 2, 3, 4}
    for one, other in zip(tasks["test"][::2], tasks["test"][1::2], strict=True):
        assert (one.language, other.language, one.level) == ("en", "zh", other.level)
        assert set(one.data.accepted) & set(other.data.accepted)
        for task in (one, other):
            named = (form for form in task.data.accepted if not form.isdecimal())
            assert not any(re.search(rf"(?<!\w){re.escape(form)}(?!\w)", task.prompt) for form in named), task.prompt


def test_splits_share_no_asked_country_and_ids_find_tasks() -> None:
    asked: dict[str, set[str]] = {}
    for split in SPLITS:
        tasks = geo_tasks(CONFIG, split)
        asked[split] = {task.data.hops[-1].title for task in tasks if task.language == "en"}
        assert all(tasks.find(task.id) == task for task in tasks[:200])
        assert tasks.find("geo0-test-en-01") is None and tasks.find("geo0-test-fr-1") is None
    assert (
        not asked["train"] & asked["test"]
        and not asked["train"] & asked["valid"]
        and not asked["valid"] & asked["test"]
    )
    assert {split_of(code) for code in geo_facts.load().countries} == set(SPLITS)


def play(env: WikiEnv, task: Task) -> float:
    env.reset(options={"task": task})
    total, over = 0.0, False
    while not over:
        _, reward, terminated, truncated, _ = env.step(env.expert())
        total, over = total + reward, terminated or truncated
    return total


@pytest.mark.parametrize("evidence", [0.0, 0.5])
def test_the_expert_earns_full_marks(evidence: float) -> None:
    env = WikiEnv(WikiConfig(corpus=Corpus.GEO, evidence=evidence))
    for split in SPLITS:
        assert {play(env, task) for task in env.tasks(split)[:800]} == {1.0}


def test_contract() -> None:
    check_text_env(lambda: WikiEnv(CONFIG))


def test_a_missing_extra_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "countryinfo":
            raise ModuleNotFoundError("No module named 'countryinfo'", name="countryinfo")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SettingsError, match=r"needs the package countryinfo: pip install 'turnwise\[geo\]'"):
        geo_facts.load.__wrapped__()
