"""Questions that need a fact or two of a fictional world and a computation on them.

A question is a chain of operations, done from left to right. Invariants: every world has questions of its own, without
repeating one; the answer is a whole number that is no fact of the question; the first operation is a product or a
remainder, and the remainder of what is not negative only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from agent_envs.core import Task, TaskSet, check_split
from agent_envs.research.config import ResearchConfig
from agent_envs.wiki.tasks import DRAWS, Gold, Hop, described, draw, follow, name, over_worlds, too_few, wiki_task
from agent_envs.wiki.world import World, build_world


@dataclass(frozen=True)
class Operator:
    """A word of the questions, and what it does."""

    words: dict[str, str]
    """Language → the word."""
    sign: str
    """Python's operator."""
    numbers: tuple[int, int]
    """Lowest and highest number it is asked with."""

    def __call__(self, left: int, right: int) -> int:
        done: int = {"*": int.__mul__, "%": int.__mod__, "+": int.__add__, "-": int.__sub__}[self.sign](left, right)
        return done


OPERATORS = {
    "times": Operator({"en": "times", "zh": "乘以"}, "*", (12, 99)),
    "modulo": Operator({"en": "modulo", "zh": "模"}, "%", (101, 997)),
    "plus": Operator({"en": "plus", "zh": "加上"}, "+", (101, 997)),
    "minus": Operator({"en": "minus", "zh": "减去"}, "-", (101, 997)),
}
_FIRST = ("times", "modulo")
_WITH_FACT = ("plus", "minus")


@dataclass(frozen=True)
class Stage:
    """A fact and what is done with it before the next one is needed: one program."""

    hops: tuple[Hop, ...]
    """The chain to the fact."""
    fact: int
    joined: str
    """How it is joined with the number so far, a key of `OPERATORS`; empty for the first fact."""
    operations: tuple[tuple[str, int], ...]
    """(key of `OPERATORS`, number) of those that follow."""

    def values(self, before: int) -> list[int]:
        """The number after each operation, of the one before this stage."""
        values = [OPERATORS[self.joined](before, self.fact) if self.joined else self.fact]
        for operator, number in self.operations:
            values.append(OPERATORS[operator](values[-1], number))
        return values


@dataclass(frozen=True)
class ResearchGold(Gold):
    """What is known about a question that needs both tools."""

    stages: tuple[Stage, ...] = ()

    @property
    def results(self) -> tuple[int, ...]:
        """The number after each stage."""
        results: list[int] = []
        for stage in self.stages:
            results.append(stage.values(results[-1] if results else 0)[-1])
        return tuple(results)


def research_tasks(config: ResearchConfig, split: str) -> TaskSet:
    """The questions of a split."""
    check_split("research", split)
    return over_worlds(config, split, _questions)


@lru_cache(maxsize=512)
def _questions(config: ResearchConfig, split: str, number: int) -> dict[str, list[Task]]:
    """Language → the questions of one world."""
    world = build_world(config.seed, split, number, config.pages)
    out: dict[str, list[Task]] = {}
    for language in config.languages:
        rng = Random(f"research {config.seed} {split} {number} {language}")
        seen: set[str] = set()
        tasks: list[Task] = []
        out[language] = tasks
        idle = 0
        while len(tasks) < config.questions:
            if (idle := idle + 1) > DRAWS:
                raise too_few(world, config.max_hops)
            task = _draw(config, world, language, rng, name(config, split, number, language, len(tasks)), len(tasks))
            if task is not None and task.prompt not in seen:
                seen.add(task.prompt)
                tasks.append(task)
                idle = 0
    return out


def _draw(config: ResearchConfig, world: World, language: str, rng: Random, task_id: str, nth: int) -> Task | None:
    """A question; None where it breaks the invariants. Hops go through all that the settings allow, with ``nth``."""
    hops = config.min_hops + nth % (config.max_hops - config.min_hops + 1)
    if rng.random() >= config.both:
        return wiki_task(world, draw(world, hops, rng), language, task_id)
    stages: list[Stage] = []
    for nth_fact in range(rng.randint(1, config.facts)):
        chain = draw(world, rng.randint(config.min_hops, config.max_hops) if nth_fact else hops, rng, to_number=True)
        lines, fact = follow(world, chain, language)
        count = 0 if nth_fact else rng.randint(config.min_operations, config.max_operations)
        joined = rng.choice(_WITH_FACT) if nth_fact else ""
        stages.append(Stage(lines, fact.number, joined, _operations(rng, count)))
    gold = _gold(world.partition(language), tuple(stages))
    if gold is None:
        return None
    level = sum(len(stage.hops) + len(stage.operations) for stage in stages) + len(stages) - 1
    return Task(task_id, world.split, _asked(stages, language), language, level, gold)


def _operations(rng: Random, count: int) -> tuple[tuple[str, int], ...]:
    drawn = [rng.choice(_FIRST if not nth else tuple(OPERATORS)) for nth in range(count)]
    return tuple((operator, rng.randint(*OPERATORS[operator].numbers)) for operator in drawn)


def _gold(partition: str, stages: tuple[Stage, ...]) -> ResearchGold | None:
    """None where a remainder of a negative number is asked for, or the answer can be read."""
    hops = tuple(hop for stage in stages for hop in stage.hops)
    value, given = 0, set()
    for stage in stages:
        values = stage.values(value)
        if any(o == "modulo" and left < 0 for left, (o, _) in zip(values, stage.operations, strict=False)):
            return None
        value = values[-1]
        given |= {stage.fact, *(number for _, number in stage.operations)}
    return None if value in given else ResearchGold(partition, hops, str(value), (str(value),), stages)


def _asked(stages: Sequence[Stage], language: str) -> str:
    steps = []
    for stage in stages:
        if stage.joined:
            steps.append((stage.joined, described(stage.hops, language)))
        steps += [(operator, str(number)) for operator, number in stage.operations]
    start = described(stages[0].hops, language)
    if language == "zh":
        done = "，再".join(f"{OPERATORS[operator].words[language]}{operand}" for operator, operand in steps)
        return f"从{start}开始，{done}。结果是多少？"
    done = ", then ".join(f"{OPERATORS[operator].words[language]} {operand}" for operator, operand in steps)
    return f"Start with {start}, then {done}. What is the result?"
