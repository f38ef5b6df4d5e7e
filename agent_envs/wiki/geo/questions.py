"""Questions over the `geo` corpus. Each is a query over the facts, and kept only when that has exactly one answer.

Invariants: the country a question begins with and the country it asks about lie in the same split; the start, the pages
on the way and the answer are all different; a chain of hops lists the pages that have to be read, in a possible order.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from random import Random

from agent_envs import scoring
from agent_envs.core import Task, TaskSet, check_split, number_after
from agent_envs.wiki.config import LANGUAGES, WikiConfig
from agent_envs.wiki.geo.facts import Facts, load
from agent_envs.wiki.geo.pages import CITY, COUNTRY, CURRENCY, LANGUAGE, WORDS, GeoWiki, Key, geo_wiki, names_of
from agent_envs.wiki.tasks import Gold, Hop

ASKED = ("capital", "region", "currency", "language", "population", "area", "calling", "domain")
_COMPARED = {
    ("population", max): {"en": "with the largest population", "zh": "人口最多"},
    ("population", min): {"en": "with the smallest population", "zh": "人口最少"},
    ("area", max): {"en": "with the largest area", "zh": "面积最大"},
    ("area", min): {"en": "with the smallest area", "zh": "面积最小"},
}
_MOST_COMPARED = 3  # neighbours; with more, reading them all would not fit into the turns


@dataclass(frozen=True)
class Question:
    """One question, in no language yet."""

    subject: dict[str, str]
    """Language → what stands for the country asked about, with ``{0}``, ``{1}`` for `named`."""
    named: tuple[Key, ...]
    """Entities named in the question."""
    path: tuple[tuple[Key, tuple[str, ...]], ...]
    """(page, relations to read there) in order; the last page is that of the country asked about."""
    asked: str
    """The relation asked for; it has exactly one object."""


def split_of(code: str) -> str:
    """The split of a country: 50 % train, 20 % valid, 30 % test, by a hash of its code."""
    percent = int.from_bytes(blake2b(code.encode(), digest_size=4).digest(), "big") % 100
    return "train" if percent < 50 else "valid" if percent < 70 else "test"


def _subjects(wiki: GeoWiki) -> Iterator[Question]:
    """All ways to point at exactly one country, without what is asked of it (`asked` is empty)."""
    facts = wiki.facts
    near = {
        key: tuple(other for other in rows.get("neighbours", ()) if not isinstance(other, str))
        for key, rows in facts.items()
        if key[0] == COUNTRY
    }
    for key in near:
        yield Question({"en": "{0}", "zh": "{0}"}, (key,), ((key, ()),), "")
        city = (CITY, key[1])
        if city in facts:
            whose = {"en": "the country whose capital is {0}", "zh": "首都是{0}的国家"}
            yield Question(whose, (city,), ((city, ("capital of",)), (key, ())), "")
        if len(near[key]) == 1:
            last = ((key, ("neighbours",)), (near[key][0], ()))
            yield Question({"en": "the only neighbour of {0}", "zh": "{0}唯一的邻国"}, (key,), last, "")
            if city in facts:
                words = {
                    "en": "the only neighbour of the country whose capital is {0}",
                    "zh": "首都是{0}的国家唯一的邻国",
                }
                yield Question(words, (city,), ((city, ("capital of",)), *last), "")
        yield from _compared(wiki, key, near[key])
        for other in sorted({two for one in near[key] for two in near[one] if two > key}):
            shared = set(near[key]) & set(near[other])
            if len(shared) == 1:
                words = {"en": "the only country that borders both {0} and {1}", "zh": "与{0}和{1}都接壤的唯一国家"}
                path = ((key, ("neighbours",)), (other, ("neighbours",)), (shared.pop(), ()))
                yield Question(words, (key, other), path, "")
    for kind, relation, words in (
        (LANGUAGE, "official in", {"en": "the only country where {0} is official", "zh": "唯一以{0}为官方语言的国家"}),
        (CURRENCY, "used in", {"en": "the only country that uses the {0}", "zh": "唯一使用{0}的国家"}),
    ):
        for key, rows in facts.items():
            if key[0] == kind and len(rows[relation]) == 1 and not isinstance(rows[relation][0], str):
                yield Question(words, (key,), ((key, (relation,)), (rows[relation][0], ())), "")  # type: ignore[arg-type]


def _compared(wiki: GeoWiki, key: Key, near: tuple[Key, ...]) -> Iterator[Question]:
    """The neighbour with the most or least of something, when there are few and no two are equal."""
    for (quantity, best), words in _COMPARED.items():
        values = {other: float(str(wiki.facts[other][quantity][0])) for other in near if quantity in wiki.facts[other]}
        if not 2 <= len(near) <= _MOST_COMPARED or len(values) < len(near) or len(set(values.values())) < len(near):
            continue
        winner = best(near, key=values.__getitem__)
        read = tuple((other, (quantity,)) for other in near if other != winner)
        subject = {"en": f"the neighbour of {{0}} {words['en']}", "zh": f"{{0}}的邻国中{words['zh']}的国家"}
        yield Question(subject, (key,), ((key, ("neighbours",)), *read, (winner, (quantity,))), "")


def _questions(wiki: GeoWiki) -> Iterator[Question]:
    """All questions with exactly one answer that the question itself does not give away."""
    for one in _subjects(wiki):
        target, already = one.path[-1]
        pages = [key for key, _ in one.path]
        for wanted in ASKED:
            values = wiki.facts[target].get(wanted, ())
            if len(values) != 1 or wanted in already or values[0] in pages or _given_away(values[0], one.named):
                continue
            yield Question(one.subject, one.named, (*one.path[:-1], (target, (wanted, *already))), wanted)


def _given_away(answer: Key | str, named: tuple[Key, ...]) -> bool:
    """Whether the name of an entity in the question holds the answer's, in any language (Swedish Krona: Swedish)."""
    if isinstance(answer, str):
        return False
    facts = load()
    forms = names_of(facts, answer)
    return any(form in names_of(facts, key)[language] for key in named for language, form in forms.items())


def _countries_of(key: Key, wiki: GeoWiki) -> tuple[str, ...]:
    """Codes of the countries that naming an entity gives away."""
    if key[0] in (COUNTRY, CITY):
        return (key[1],)
    (values,) = wiki.facts[key].values()
    return tuple(value[1] for value in values if not isinstance(value, str))


@lru_cache(maxsize=8)
def _of_split(seed: int, split: str, low: int, high: int) -> tuple[Question, ...]:
    """The questions of a split with `low` to `high` hops, in seeded order."""
    wiki = geo_wiki(LANGUAGES[0])
    result = [
        question
        for question in _questions(wiki)
        if low <= len(question.path) <= high
        and all(split_of(code) == split for code in _countries_of(question.path[-1][0], wiki))
        and all(split_of(code) == split for key in question.named for code in _countries_of(key, wiki))
    ]
    Random(f"geo {seed} {split}").shuffle(result)
    return tuple(result)


def geo_tasks(config: WikiConfig, split: str) -> TaskSet:
    """The questions of a split, each in every language of the settings."""
    check_split("wiki", split)
    result = _of_split(config.seed, split, config.min_hops, config.max_hops)
    languages = config.languages

    def build(index: int) -> Task:
        nth, at = divmod(index, len(languages))
        language = languages[at]
        return _task(result[nth], split, language, f"geo{config.seed}-{split}-{language}-{nth}")

    def number_of(task_id: str) -> int | None:
        for at, language in enumerate(languages):
            if (nth := number_after(f"geo{config.seed}-{split}-{language}-", task_id)) is not None:
                return nth * len(languages) + at
        return None

    return TaskSet(len(result) * len(languages), build, number_of)


def _task(question: Question, split: str, language: str, task_id: str) -> Task:
    wiki, facts = geo_wiki(language), load()
    hops = []
    for key, relations in question.path:
        first, *others = (wiki.line(key, relation) for relation in relations)
        hops.append(Hop(wiki.titles[key], first, WORDS[relations[0]][language], tuple(others)))
    subject = question.subject[language].format(*(wiki.titles[key] for key in question.named))
    word = WORDS[question.asked][language]
    prompt = f"{subject}的{word}是什么？" if language == "zh" else f"What is the {word} of {subject}?"
    (value,) = wiki.facts[question.path[-1][0]][question.asked]
    answer = wiki.value(value)
    gold = Gold(f"geo-{language}", tuple(hops), answer, _accepted(value, answer, facts))
    return Task(task_id, split, prompt, language, len(hops), gold)


def _accepted(value: Key | str, answer: str, facts: Facts) -> tuple[str, ...]:
    """The answer as written, and the plain names of an entity in all languages."""
    if isinstance(value, str):
        return (answer,)
    forms = {scoring.normalise(form): form for form in (answer, *names_of(facts, value).values())}
    return tuple(forms.values())
