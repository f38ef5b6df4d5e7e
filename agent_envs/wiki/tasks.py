"""Questions over the fictional worlds. A question is a chain of relations from one page; executing it gives the answer.

Invariants: no chain visits a page twice, so the answer differs from the start and from every page on the way; each
chain has exactly one answer; making the task list needs no index, and each task only its own world.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any

from agent_envs.core import SettingsError, Task, TaskSet, check_split, number_after
from agent_envs.wiki.config import WikiConfig
from agent_envs.wiki.relations import word
from agent_envs.wiki.world import Fact, World, build_world, world_count


@dataclass(frozen=True)
class Hop:
    """One step of a chain: the line that states it."""

    title: str
    """Page that states it."""
    line: int
    """Line id on that page."""
    relation: str
    """The relation as written on the page, in the task's language."""
    also: tuple[int, ...] = ()
    """Other lines of the page that have to be read."""


@dataclass(frozen=True)
class Gold:
    """What is known about a question and never shown to the agent."""

    partition: str
    """The wiki it is asked in."""
    hops: tuple[Hop, ...]
    """The chain; its last line holds the answer."""
    answer: str
    """The answer as written in that line."""
    accepted: tuple[str, ...]
    """All accepted forms, in every language."""

    @property
    def evidence(self) -> frozenset[tuple[str, int]]:
        """The (title, line id) of every line that has to be read."""
        return frozenset((hop.title, line) for hop in self.hops for line in (hop.line, *hop.also))


Questions = Callable[[Any, str, int], dict[str, list[Task]]]
"""(settings, split, number of a world) → language → its questions."""
Chain = tuple[int, tuple[str, ...]]
"""(first page, relations)"""


def world_tasks(config: WikiConfig, split: str) -> TaskSet:
    """The questions of a split."""
    check_split("wiki", split)
    return over_worlds(config, split, _world_questions)


def over_worlds(config: WikiConfig, split: str, questions: Questions) -> TaskSet:
    """The questions of all worlds; neighbours in the list lie in different worlds, so any stretch is a fair sample.

    Their ids are those of `name`.
    """
    worlds, languages = world_count(config, split), config.languages

    def build(index: int) -> Task:
        rest, language = divmod(index, len(languages))
        question, number = divmod(rest, worlds)
        return questions(config, split, number)[languages[language]][question]

    def number_of(task_id: str) -> int | None:
        world, _, language = task_id.rpartition("-")[0].rpartition("-")
        at, nth = number_after(f"world{config.seed}-{split}-", world), number_after(f"{world}-{language}-", task_id)
        if language not in languages or at is None or nth is None or at >= worlds or nth >= config.questions:
            return None
        return (nth * worlds + at) * len(languages) + languages.index(language)

    return TaskSet(worlds * len(languages) * config.questions, build, number_of)


DRAWS = 20_000
"""Draws in a row that may give no new question, before there is taken to be none."""


def name(config: WikiConfig, split: str, number: int, language: str, nth: int) -> str:
    """The id of a question of a world."""
    return f"world{config.seed}-{split}-{number}-{language}-{nth}"


@lru_cache(maxsize=512)
def _world_questions(config: WikiConfig, split: str, number: int) -> dict[str, list[Task]]:
    """Language → the questions of one world. Each language asks other questions, without repeating one."""
    world = build_world(config.seed, split, number, config.pages)
    out: dict[str, list[Task]] = {}
    span = config.max_hops - config.min_hops + 1
    for shift, language in enumerate(config.languages):
        rng = Random(f"questions {config.seed} {split} {number} {language}")
        seen: set[Chain] = set()
        tasks = []
        for nth in range(config.questions):
            chain = draw(world, config.min_hops + (nth + number + shift) % span, rng, seen)
            seen.add(chain)
            tasks.append(wiki_task(world, chain, language, name(config, split, number, language, nth)))
        out[language] = tasks
    return out


def draw(world: World, hops: int, rng: Random, seen: Collection[Chain] = (), *, to_number: bool = False) -> Chain:
    """A chain not in `seen`, to a number where that is wanted. Raises SettingsError where none seems to be left."""
    for _ in range(DRAWS):
        start = at = rng.randrange(len(world.entities))
        visited, relations = {start}, []
        for left in reversed(range(hops)):
            facts = [fact for fact in world.entities[at].facts if not left or fact.target is not None]
            if to_number and not left:
                facts = [fact for fact in facts if fact.target is None]
            fact = rng.choice(facts)
            relations.append(fact.relation)
            if fact.target is not None:
                if fact.target in visited:
                    break
                visited.add(fact.target)
                at = fact.target
        else:
            if (start, tuple(relations)) not in seen:
                return start, tuple(relations)
    raise too_few(world, hops)


def too_few(world: World, hops: int) -> SettingsError:
    """There are not as many questions as are wanted."""
    return SettingsError(
        f"a world of {len(world.entities)} pages has not as many questions of {hops} links and facts as are wanted: "
        "lower questions, or raise pages or max_hops"
    )


def follow(world: World, chain: Chain, language: str) -> tuple[tuple[Hop, ...], Fact]:
    """(the lines that state the relations of a chain, the last fact)"""
    at, relations = chain
    hops = []
    for relation in relations:
        entity = world.entities[at]
        result = entity.fact(relation)
        assert result is not None, f"{relation} is not on the page of {entity.names[language]}"
        line, fact = result
        hops.append(Hop(entity.names[language], line, word(relation, language)))
        at = at if fact.target is None else fact.target
    return tuple(hops), fact


def wiki_task(world: World, chain: Chain, language: str, task_id: str) -> Task:
    """The question that a chain answers."""
    hops, fact = follow(world, chain, language)
    accepted = (str(fact.number),) if fact.target is None else tuple(world.entities[fact.target].names.values())
    gold = Gold(world.partition(language), hops, world.object(fact, language), accepted)
    prompt = ask(hops[0].title, [hop.relation for hop in hops], language)
    return Task(task_id, world.split, prompt, language, len(hops), gold)


def ask(start: str, relations: Sequence[str], language: str) -> str:
    """The question for the end of a chain of relations."""
    asked = _in_words(start, relations, language)
    return f"{asked}是什么？" if language == "zh" else f"What is {asked}?"


def described(hops: Sequence[Hop], language: str) -> str:
    """The chain in words: ``Bel Mora's capital's mayor``."""
    return _in_words(hops[0].title, [hop.relation for hop in hops], language)


def _in_words(start: str, relations: Sequence[str], language: str) -> str:
    return ("的" if language == "zh" else "'s ").join([start, *relations])
