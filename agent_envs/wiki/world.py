"""Seeded fictional worlds: entities with facts, each world in several languages that run in parallel.

Invariants of a world: names are unique; all links stay inside; every page can be reached from every other one; a
relation has exactly one object on a page; the same (seed, split, number, pages) gives the same world everywhere.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from agent_envs.core import SPLITS
from agent_envs.wiki.backend import Link, Page, PageLine
from agent_envs.wiki.config import WikiConfig
from agent_envs.wiki.names import names_of
from agent_envs.wiki.relations import CITY, COUNTRY, FACTS, FIRM, KINDS, NUMBERS, PERSON, RIVER, word


@dataclass(frozen=True)
class Fact:
    """One line of a page after its first: a relation and its object."""

    relation: str
    target: int | None
    """Entity it links to, or None when the object is a number."""
    number: int = 0
    """The object when there is no target."""


@dataclass(frozen=True)
class Entity:
    """A thing of the world; its page holds its facts in this order from line 2 on."""

    kind: str
    names: dict[str, str]
    """Language → name."""
    facts: tuple[Fact, ...]

    def fact(self, relation: str) -> tuple[int, Fact] | None:
        """(line id, fact) of a relation, None when the page does not state it."""
        for line, fact in enumerate(self.facts, 2):
            if fact.relation == relation:
                return line, fact
        return None


@dataclass(frozen=True)
class World:
    """One world; entity numbers are indices into `entities`."""

    split: str
    number: int
    entities: tuple[Entity, ...]

    def partition(self, language: str) -> str:
        return f"{self.split}-{self.number}-{language}"

    def object(self, fact: Fact, language: str) -> str:
        """The object of a fact as it is written in a language."""
        return str(fact.number) if fact.target is None else self.entities[fact.target].names[language]

    def page(self, number: int, language: str) -> Page:
        """The page of an entity; the names in the other languages are its aliases."""
        entity = self.entities[number]
        name = entity.names[language]
        kind = KINDS[entity.kind][language]
        lines = [PageLine(f"{name}是{kind}。" if language == "zh" else f"{name} is a {kind}.")]
        for fact in entity.facts:
            head, value = f"{word(fact.relation, language)}: ", self.object(fact, language)
            link = () if fact.target is None else (Link(len(head), len(head) + len(value), value),)
            lines.append(PageLine(head + value, link))
        return Page(name, tuple(lines), tuple(other for code, other in entity.names.items() if code != language))


def world_count(config: WikiConfig, split: str) -> int:
    return {"train": config.train_worlds, "valid": config.valid_worlds, "test": config.test_worlds}[split]


@lru_cache(maxsize=256)
def build_world(seed: int, split: str, number: int, pages: int) -> World:
    """World `number` of a split, with `pages` entities."""
    rng = Random(f"world {seed} {split} {number}")
    kinds = _kinds(pages)
    of_kind: dict[str, list[int]] = {kind: [] for kind in FACTS}
    for index, kind in enumerate(kinds):
        of_kind[kind].append(index)
    names = rng.sample(names_of(split), pages)
    objects = _objects(kinds, of_kind, rng)
    entities = []
    for index, kind in enumerate(kinds):
        facts = []
        for relation, target in FACTS[kind].items():
            if target is None:
                facts.append(Fact(relation, None, rng.randint(*NUMBERS[relation])))
            elif (relation, index) in objects:
                facts.append(Fact(relation, objects[relation, index]))
        rng.shuffle(facts)
        entities.append(Entity(kind, names[index], tuple(facts)))
    return World(split, number, tuple(entities))


def _kinds(pages: int) -> list[str]:
    """How many of each kind: 4 countries, 8 cities, 6 rivers, 4 firms and 18 persons of every 40."""
    counts = {
        COUNTRY: max(3, round(pages * 0.1)),
        CITY: max(4, round(pages * 0.2)),
        RIVER: max(3, round(pages * 0.15)),
        FIRM: max(3, round(pages * 0.1)),
    }
    counts[PERSON] = pages - sum(counts.values())
    return [kind for kind, count in counts.items() for _ in range(count)]


_RINGS = (("rival", COUNTRY), ("twin", CITY), ("teacher", PERSON), ("tributary", RIVER), ("rival", FIRM))
"""Relations that lead through all entities of a kind in one cycle."""


def _objects(kinds: list[str], of_kind: dict[str, list[int]], rng: Random) -> dict[tuple[str, int], int]:
    """(relation, entity) → object. Cycles through each kind, and links between kinds, make the world connected."""
    objects: dict[tuple[str, int], int] = {}
    for relation, kind in _RINGS:
        ring = rng.sample(of_kind[kind], len(of_kind[kind]))
        objects |= {(relation, one): other for one, other in zip(ring, ring[1:] + ring[:1], strict=True)}
    couples = rng.sample(of_kind[PERSON], len(of_kind[PERSON]) // 2 * 2)
    for one, other in zip(couples[::2], couples[1::2], strict=True):
        objects["spouse", one], objects["spouse", other] = other, one
    countries = of_kind[COUNTRY]
    cities = rng.sample(of_kind[CITY], len(of_kind[CITY]))
    for at, city in enumerate(cities):  # the first cities are the capitals, so each country has one of its own
        objects["country", city] = countries[at % len(countries)]
        if at < len(countries):
            objects["capital", countries[at]] = city
    linked = [{index} for index in range(len(kinds))]
    for (_, page), other in objects.items():
        linked[page].add(other)
    for index, kind in enumerate(kinds):
        used = linked[index]
        for relation, target in FACTS[kind].items():
            if target is None or (relation, index) in objects or relation == "spouse":
                continue
            # objects of a page differ where the kind is large enough, so that taking a wrong line shows
            fresh = [other for other in of_kind[target] if other not in used]
            choices = fresh or [other for other in of_kind[target] if other != index]
            objects[relation, index] = choice = rng.choice(choices)
            used.add(choice)
    return objects


def pages_of(config: WikiConfig) -> Iterator[tuple[str, Iterator[Page]]]:
    """(partition, its pages) of the whole corpus, in a fixed order."""
    for split in SPLITS:
        for number in range(world_count(config, split)):
            world = build_world(config.seed, split, number, config.pages)
            for language in config.languages:
                yield world.partition(language), (world.page(at, language) for at in range(len(world.entities)))
