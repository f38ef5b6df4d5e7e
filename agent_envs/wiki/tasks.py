"""Questions over the fictional worlds. A question is a chain of relations from one page; executing it gives the answer.

Invariants: no chain visits a page twice, so the answer differs from the start and from every page on the way; each
chain has exactly one answer; making the task list needs no index, and each task only its own world.
"""

from dataclasses import dataclass
from functools import lru_cache
from random import Random

from agent_envs.core import Task, TaskSet, check_split
from agent_envs.wiki.config import WikiConfig
from agent_envs.wiki.relations import word
from agent_envs.wiki.world import World, build_world, world_count


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


def world_tasks(config: WikiConfig, split: str) -> TaskSet:
    """The questions of a split; neighbours in the list lie in different worlds, so any stretch is a fair sample."""
    check_split("wiki", split)
    worlds, languages = world_count(config, split), config.languages

    def build(index: int) -> Task:
        rest, language = divmod(index, len(languages))
        question, number = divmod(rest, worlds)
        return _world_questions(config, split, number)[languages[language]][question]

    def number_of(task_id: str) -> int | None:
        head, _, tail = task_id.partition(f"world{config.seed}-{split}-")
        number, _, tail = tail.partition("-")
        language, _, question = tail.partition("-")
        if head or language not in languages or not (number.isdecimal() and question.isdecimal()):
            return None
        at, nth = int(number[:9]), int(question[:9])
        if at >= worlds or nth >= config.questions or f"{at}-{language}-{nth}" != f"{number}-{language}-{question}":
            return None
        return (nth * worlds + at) * len(languages) + languages.index(language)

    return TaskSet(worlds * len(languages) * config.questions, build, number_of)


@lru_cache(maxsize=512)
def _world_questions(config: WikiConfig, split: str, number: int) -> dict[str, list[Task]]:
    """Language → the questions of one world. Each language asks other questions, without repeating one."""
    world = build_world(config.seed, split, number, config.pages)
    out: dict[str, list[Task]] = {}
    span = config.max_hops - config.min_hops + 1
    for shift, language in enumerate(config.languages):
        rng = Random(f"questions {config.seed} {split} {number} {language}")
        seen: set[tuple[int, tuple[str, ...]]] = set()
        tasks = []
        for nth in range(config.questions):
            chain = _draw(world, config.min_hops + (nth + number + shift) % span, seen, rng)
            seen.add(chain)
            tasks.append(_task(world, chain, language, f"world{config.seed}-{split}-{number}-{language}-{nth}"))
        out[language] = tasks
    return out


def _draw(world: World, hops: int, seen: set[tuple[int, tuple[str, ...]]], rng: Random) -> tuple[int, tuple[str, ...]]:
    """A chain not in `seen`: (start, relations). Terminates, since a world has far more chains than questions."""
    while True:
        start = at = rng.randrange(len(world.entities))
        visited, relations = {start}, []
        for left in reversed(range(hops)):
            facts = [fact for fact in world.entities[at].facts if not left or fact.target is not None]
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


def _task(world: World, chain: tuple[int, tuple[str, ...]], language: str, task_id: str) -> Task:
    start, relations = chain
    at, hops = start, []
    for relation in relations:
        entity = world.entities[at]
        result = entity.fact(relation)
        assert result is not None, f"{task_id}: {relation} is not on the page"
        line, fact = result
        hops.append(Hop(entity.names[language], line, word(relation, language)))
        at = at if fact.target is None else fact.target
    accepted = (str(fact.number),) if fact.target is None else tuple(world.entities[fact.target].names.values())
    gold = Gold(world.partition(language), tuple(hops), world.object(fact, language), accepted)
    prompt = _ask(hops[0].title, [hop.relation for hop in hops], language)
    return Task(task_id, world.split, prompt, language, len(hops), gold)


def _ask(start: str, relations: list[str], language: str) -> str:
    if language == "zh":
        return f"{start}{''.join(f'的{relation}' for relation in relations)}是什么？"
    return f"What is {start}{''.join(chr(39) + f's {relation}' for relation in relations)}?"
