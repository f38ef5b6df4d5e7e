"""The questions: what they ask, what the answer is, and that the splits share no name."""

import re

import pytest

from agent_envs.core import SettingsError
from agent_envs.research.config import Format, ResearchConfig
from agent_envs.research.tasks import OPERATORS, ResearchGold, research_tasks
from agent_envs.wiki.config import Corpus, WikiConfig
from agent_envs.wiki.env import WikiEnv
from agent_envs.wiki.world import build_world

SMALL = {"train_worlds": 6, "valid_worlds": 3, "test_worlds": 4, "questions": 12}
WORDS = {"times": "*", "modulo": "%", "plus": "+", "minus": "-"}


def test_the_text_says_what_the_answer_is() -> None:
    """An independent reading of the English text, with the facts taken from the world."""
    config = ResearchConfig(**SMALL, facts=2, max_operations=3, max_hops=3)
    for split in ("train", "test"):
        for at, task in enumerate(research_tasks(config, split)):
            world = build_world(config.seed, split, at % (6 if split == "train" else 4), config.pages)
            by_name = {entity.names["en"]: entity for entity in world.entities}

            def fact(text: str, world=world, by_name=by_name) -> int:  # type: ignore[no-untyped-def]
                name, *relations = text.split("'s ")
                here = by_name[name]
                for relation in relations:
                    _, found = here.fact(relation)
                    here = here if found.target is None else world.entities[found.target]
                return int(found.number)

            start, *steps = re.fullmatch(r"Start with (.*)\. What is the result\?", task.prompt)[1].split(", then ")
            value = fact(start)
            for step in steps:
                word, operand = step.split(" ", 1)
                value = eval(f"{value} {WORDS[word]} {operand if operand.isdecimal() else fact(operand)}")
            assert task.data.accepted == (str(value),), task.prompt


def test_levels_and_invariants() -> None:
    config = ResearchConfig(**SMALL, facts=2, min_operations=2, max_operations=3, max_hops=3)
    tasks = list(research_tasks(config, "train"))
    assert {len(task.data.stages) for task in tasks} == {1, 2}
    assert len({task.prompt for task in tasks}) == len(tasks) == 72
    for task in tasks:
        first, *more = task.data.stages
        assert 2 <= len(first.operations) <= 3 and first.operations[0][0] in ("times", "modulo")
        numbers = {stage.fact for stage in task.data.stages} | {n for _, n in first.operations}
        assert task.data.results[-1] not in numbers
        assert task.level == sum(len(stage.hops) for stage in (first, *more)) + len(first.operations) + len(more)
        left = first.values(0)
        assert all(v >= 0 for v, (o, _) in zip(left, first.operations, strict=False) if o == "modulo")


def test_the_share_that_needs_both_tools() -> None:
    for both, low, high in ((1.0, 1.0, 1.0), (0.5, 0.35, 0.65), (0.0, 0.0, 0.0)):
        tasks = list(research_tasks(ResearchConfig(**SMALL, both=both), "train"))
        share = sum(isinstance(task.data, ResearchGold) for task in tasks) / len(tasks)
        assert low <= share <= high


def test_splits_share_no_name_and_ids_find_their_tasks() -> None:
    config = ResearchConfig(**SMALL, languages=("en", "zh"))
    names = {}
    for split in ("train", "valid", "test"):
        tasks = research_tasks(config, split)
        names[split] = {hop.title for task in tasks for hop in task.data.hops}
        assert all(tasks.find(task.id) == task for task in tasks)
    assert not names["train"] & names["test"] and not names["train"] & names["valid"]
    assert not names["valid"] & names["test"]


def test_operators() -> None:
    assert [OPERATORS[o](17, 5) for o in ("times", "modulo", "plus", "minus")] == [85, 2, 22, 12]


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"facts": 3}, "research: facts must be from 1 to 2, not 3"),
        ({"min_operations": 3}, "research: min_operations must be from 1 to 2, not 3"),
        ({"both": 1.5}, "research: both must be from 0 to 1, not 1.5"),
        ({"format": Format.TAGS, "outcome": "exact", "evidence": 0.5}, "research: evidence and invalid_penalty do not"),
        ({"corpus": Corpus.GEO}, "research: corpus geo needs a source: questions are made about fictional worlds only"),
        ({"corpus": Corpus.GEO, "source": "q.jsonl", "facts": 2}, "research: facts shapes the questions that are made"),
        ({"python_sandbox": "jail"}, "unknown python_sandbox 'jail'"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, object], line: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        ResearchConfig(**settings)  # type: ignore[arg-type]
    assert str(refusal.value).startswith(line)


def test_more_questions_than_a_world_has_are_refused_in_one_line() -> None:
    """They were looked for without end."""
    few = ResearchConfig(both=0.0, max_hops=1, questions=150)
    with pytest.raises(SettingsError, match="a world of 20 pages has not as many questions of 1 links") as error:
        research_tasks(few, "train")[0]
    assert "\n" not in str(error.value)
    with pytest.raises(SettingsError, match="lower questions, or raise pages or max_hops"):
        WikiEnv(WikiConfig(pages=20, max_hops=1, questions=200)).tasks("train")[0]


def test_the_wiki_asks_what_it_asked() -> None:
    """The control of the shared code: settings that only research has change nothing of its questions."""
    from agent_envs.wiki.tasks import world_tasks

    task = world_tasks(WikiConfig(), "train")[0]
    assert task.prompt.startswith("What is ") and task.level == len(task.data.hops)
