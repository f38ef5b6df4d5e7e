"""Questions made of what a wiki's pages say: chains of facts, and links that two pages share.

Invariants: each question has exactly one answer, on lines that an agent sees when it opens their pages; no page is
visited twice, and the answer is not in a title that the question names. The page that a question begins with and the
page of its answer belong to one split, by a hash of their titles; the pages on the way, of which the second page of a
shared link is one, may belong to any.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from agent_envs.scoring import normalise
from agent_envs.splits import hashed_split
from agent_envs.wiki.own.facts import Fact
from agent_envs.wiki.own.walk import Known
from agent_envs.wiki.tasks import Hop, ask
from agent_envs.wiki.tokens import fold

_COMMON = 2
"""Pages that must state a relation; what a single page says in this form is more often a sentence."""
_TRIES = 8
"""Draws of a chain for each question."""
_MOST_LINKING = 20
"""Pages that link to a page and are paired with each other."""


class Made(NamedTuple):
    """A question, without the other names of its answer."""

    split: str
    prompt: str
    hops: tuple[Hop, ...]
    answer: str
    """As written on the last line."""
    forms: tuple[str, ...]
    """Other forms that are accepted."""
    target: str | None
    """Title of the answer's page; None where it is text."""


class Sizes(NamedTuple):
    """How long questions are, and how many."""

    low: int
    """Fewest hops."""
    high: int
    """Most hops."""
    each: int
    """Most questions that begin at one page."""


@lru_cache(maxsize=1 << 16)
def split_of(title: str, seed: int) -> str:
    """The split of a page: 60 % train, 20 % valid, 20 % test, by a hash of its title and the seed."""
    return hashed_split(f"page {seed} {fold(title)}")


def made_of(known: Known, sizes: Sizes, language: str, seed: int, rng: np.random.Generator) -> list[Made]:
    """The questions, in an order drawn by ``rng``."""
    times = Counter(fold(fact.relation) for page in known.pages.values() for fact in page.facts)
    facts = {
        title: [fact for fact in page.facts if times[fold(fact.relation)] >= _COMMON and _leads(known, title, fact)]
        for title, page in known.pages.items()
    }
    found = list(_chains(known, facts, sizes, language, seed, rng))
    if sizes.low <= 2 <= sizes.high:
        found += _shared(known, [title for title in facts if not facts[title]], sizes.each, language, seed, rng)
    # X's a's b may be two chains where a page is called "X's a".
    asked = Counter(one.prompt for one in found)
    return [found[at] for at in rng.permutation(len(found)) if asked[found[at].prompt] == 1]


def _leads(known: Known, title: str, fact: Fact) -> bool:
    """Whether it is known what a fact's object is, and that it is not the page itself."""
    return fact.target is None or known.true.get(fact.target) not in (None, title)


def _chains(
    known: Known, facts: dict[str, list[Fact]], sizes: Sizes, language: str, seed: int, rng: np.random.Generator
) -> Iterator[Made]:
    for start in facts:
        seen: set[tuple[int, ...]] = set()
        for nth in range(sizes.each * _TRIES):
            if len(seen) == sizes.each:
                break
            chain = _draw(known, facts, start, sizes.low + nth % (sizes.high - sizes.low + 1), rng)
            lines = tuple(fact.line for _, fact in chain)
            if chain and lines not in seen:
                made = _chained(known, chain, language, seed)
                if made is not None:
                    seen.add(lines)
                    yield made


def _draw(
    known: Known, facts: dict[str, list[Fact]], start: str, hops: int, rng: np.random.Generator
) -> list[tuple[str, Fact]]:
    """(page, its fact) of a chain that visits no page twice; nothing where the draw leads to none."""
    chain: list[tuple[str, Fact]] = []
    at: str | None = start
    for left in reversed(range(hops)):
        choices = [fact for fact in facts[at] if not left or fact.target is not None] if at is not None else []
        if not choices or at is None:
            return []
        fact = choices[int(rng.integers(len(choices)))]
        chain.append((at, fact))
        at = None if fact.target is None else known.true[fact.target]
        if at in [title for title, _ in chain]:
            return []
    return chain


def _chained(known: Known, chain: Sequence[tuple[str, Fact]], language: str, seed: int) -> Made | None:
    (start, _), (last, fact) = chain[0], chain[-1]
    target = None if fact.target is None else known.true[fact.target]
    split = split_of(start, seed)
    forms = () if target is None else _forms(target)
    if split_of(target or last, seed) != split or _given_away((fact.value, *forms), (start,)):
        return None
    hops = tuple(Hop(title, one.line, one.relation) for title, one in chain)
    return Made(split, ask(start, [hop.relation for hop in hops], language), hops, fact.value, forms, target)


def _shared(
    known: Known, titles: Sequence[str], each: int, language: str, seed: int, rng: np.random.Generator
) -> Iterator[Made]:
    """Questions for the one link that two pages share, about pages without facts."""
    linking: dict[str, list[str]] = defaultdict(list)
    for title in titles:
        for link in known.pages[title].links:
            linking[link].append(title)
    begun: Counter[str] = Counter()
    for link, pages in linking.items():
        target = known.true.get(link)
        if target is None or target in pages:
            continue
        some = [pages[at] for at in sorted(rng.permutation(len(pages))[:_MOST_LINKING])]
        for pair in itertools.combinations(some, 2):
            # The first page of a question is of the split of its answer.
            one, other = pair if split_of(pair[0], seed) == split_of(target, seed) else pair[::-1]
            (at, text), (also, text_too) = known.pages[one].links[link], known.pages[other].links[link]
            forms = _forms(target)
            if (
                begun[one] < each
                and split_of(one, seed) == split_of(target, seed)
                and text == text_too
                and _is_alone(known, one, other)
                and not _given_away((text, *forms), (one, other))
            ):
                begun[one] += 1
                hops = (Hop(one, at, ""), Hop(other, also, ""))
                yield Made(split_of(one, seed), _ask_shared(one, other, language), hops, text, forms, target)


def _is_alone(known: Known, one: str, other: str) -> bool:
    """Whether two pages share one link only, both by where links lead, as far as that is known, and by their texts."""
    first, second = known.pages[one], known.pages[other]
    leads = [{known.true.get(title) or title for title in page.titles} for page in (first, second)]
    return len(leads[0] & leads[1]) == 1 and len(first.texts & second.texts) == 1


def _ask_shared(one: str, other: str, language: str) -> str:
    if language == "zh":
        return f"页面“{one}”和页面“{other}”上都有的唯一链接是什么？"
    return f'Which link is on both of the pages "{one}" and "{other}"?'


def _forms(title: str) -> tuple[str, ...]:
    """A title, and what stands before its brackets: Mercury (planet)."""
    return tuple(dict.fromkeys((title, title.partition(" (")[0])))


def _given_away(forms: Sequence[str], named: Sequence[str]) -> bool:
    titles = [normalise(title) for title in named]
    return any(not normalise(form) or normalise(form) in title for form in forms for title in titles)
