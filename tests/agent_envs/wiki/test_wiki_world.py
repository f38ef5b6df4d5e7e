"""Promises of the fictional worlds and of the questions over them."""

from collections import Counter
from statistics import median

import pytest

from agent_envs import SettingsError
from agent_envs.wiki.backend import Page
from agent_envs.wiki.config import LANGUAGES, WikiConfig
from agent_envs.wiki.names import names_of, parts
from agent_envs.wiki.relations import FACTS, MISTAKES, RELATIONS
from agent_envs.wiki.tasks import Gold, world_tasks
from agent_envs.wiki.world import World, build_world

SPLITS = ("train", "valid", "test")


def worlds(pages: int = 40, count: int = 5) -> list[World]:
    return [build_world(0, split, number, pages) for split in SPLITS for number in range(count)]


def test_names_of_other_splits_never_occur_whole_in_training() -> None:
    by_split = {split: {name[code] for name in names_of(split) for code in ("en", "zh")} for split in SPLITS}
    assert not by_split["train"] & (by_split["valid"] | by_split["test"])
    assert not by_split["valid"] & by_split["test"]
    assert sum(map(len, by_split.values())) == 2 * 48 * 48
    text = " ".join(by_split["train"])
    for name in by_split["valid"] | by_split["test"]:
        assert name not in text


def test_every_part_occurs_in_training_and_none_begins_another() -> None:
    for code in ("en", "zh"):
        first, second = parts(code)
        every = [*first, *second]
        assert len(set(every)) == 96
        assert not [(one, other) for one in every for other in every if one != other and other.startswith(one)]
        names = {name[code] for name in names_of("train")}
        assert all(any(name.startswith(part) for name in names) for part in first)
        assert all(any(name.endswith(part) for name in names) for part in second)


def test_training_text_holds_no_unseen_name(small: WikiConfig) -> None:
    unseen = {name[code] for split in ("valid", "test") for name in names_of(split) for code in ("en", "zh")}
    shown = []
    for number in range(small.train_worlds):
        world = build_world(small.seed, "train", number, small.pages)
        shown += [row for code in ("en", "zh") for at in range(40) for row in world.page(at, code).shown]
    text = "\n".join([*shown, *(task.prompt for task in world_tasks(small, "train"))])
    assert not [name for name in unseen if name in text]


@pytest.mark.parametrize("pages", [20, 21, 40, 97, 150])
def test_pages(pages: int) -> None:
    for world in worlds(pages, 2):
        assert len(world.entities) == pages
        assert len({entity.names["en"] for entity in world.entities}) == pages
        for at, entity in enumerate(world.entities):
            assert 4 <= len(entity.facts) <= 7
            assert len({fact.relation for fact in entity.facts}) == len(entity.facts)
            for fact in entity.facts:
                kind = FACTS[entity.kind][fact.relation]
                assert fact.target != at
                assert (kind is None) == (fact.target is None)
                if fact.target is not None:
                    assert world.entities[fact.target].kind == kind


@pytest.mark.parametrize("pages", [20, 40])
def test_every_page_is_reachable_from_every_page(pages: int) -> None:
    for world in worlds(pages):
        out = [[fact.target for fact in entity.facts if fact.target is not None] for entity in world.entities]
        into: list[list[int]] = [[] for _ in out]
        for at, targets in enumerate(out):
            for target in targets:
                into[target].append(at)
        for edges in (out, into):
            seen, todo = {0}, [0]
            while todo:
                fresh = set(edges[todo.pop()]) - seen
                seen |= fresh
                todo += fresh
            assert len(seen) == pages


def test_facts_agree_with_each_other() -> None:
    for world in worlds():
        for at, entity in enumerate(world.entities):
            target = {fact.relation: fact.target for fact in entity.facts}
            if entity.kind == "country":
                assert target["capital"] is not None and target["ally"] != target["rival"]
                found = world.entities[target["capital"]].fact("country")
                assert found is not None and found[1].target == at
            if entity.kind == "person" and target.get("spouse") is not None:
                found = world.entities[target["spouse"]].fact("spouse")  # type: ignore[index]
                assert found is not None and found[1].target == at


def test_languages_run_in_parallel_and_lines_are_shuffled() -> None:
    world = build_world(0, "train", 0, 40)
    for at, entity in enumerate(world.entities):
        en, zh = world.page(at, "en"), world.page(at, "zh")
        assert (en.title, en.aliases) == (entity.names["en"], (entity.names["zh"],))
        assert zh.aliases == (entity.names["en"],)
        assert [len(line.links) for line in en.lines] == [len(line.links) for line in zh.lines]
        for one, other in zip(en.lines[1:], zh.lines[1:], strict=True):
            assert RELATIONS[one.text.partition(": ")[0]] == other.text.partition(": ")[0]
    orders = {tuple(fact.relation for fact in e.facts) for e in world.entities if e.kind == "person"}
    assert len(orders) > 5


def test_the_same_settings_give_the_same_world_and_others_do_not() -> None:
    build_world.cache_clear()
    first = build_world(3, "test", 1, 40)
    build_world.cache_clear()
    assert build_world(3, "test", 1, 40) == first
    assert build_world(4, "test", 1, 40) != first != build_world(3, "test", 2, 40)


def follow(page_of: dict[str, Page], gold: Gold) -> str:
    """Answer a question by reading the pages: the definition of its truth."""
    title = gold.hops[0].title
    for hop in gold.hops:
        assert title == hop.title
        rows = [at for at, line in enumerate(page_of[title].lines, 1) if line.text.startswith(hop.relation + ": ")]
        assert rows == [hop.line], "the relation stands on exactly one line"
        line = page_of[title].lines[hop.line - 1]
        title = line.links[0].title if line.links else line.text.partition(": ")[2]
    return title


def test_each_question_has_exactly_the_answer_that_reading_gives(small: WikiConfig) -> None:
    for split in SPLITS:
        for task in world_tasks(small, split):
            _, number, code = task.data.partition.split("-")
            world = build_world(small.seed, split, int(number), small.pages)
            pages = {page.title: page for page in (world.page(at, code) for at in range(small.pages))}
            assert code == task.language
            answer = follow(pages, task.data)
            titles = [hop.title for hop in task.data.hops]
            assert answer == task.data.answer and answer in task.data.accepted
            assert len({*titles, answer}) == len(titles) + 1, "no page twice, and the answer is none of them"
            assert task.level == len(titles) and titles[0] in task.prompt
            assert not any(name in task.prompt for name in task.data.accepted)


def test_wording() -> None:
    config = WikiConfig(train_worlds=1, languages=LANGUAGES)
    tasks = {task.id: task for task in world_tasks(config, "train")}
    en = next(task for task in tasks.values() if task.language == "en" and task.level == 2)
    start, relations = en.data.hops[0].title, [hop.relation for hop in en.data.hops]
    assert en.prompt == f"What is {start}'s {relations[0]}'s {relations[1]}?"
    zh = next(task for task in tasks.values() if task.language == "zh" and task.level == 3)
    assert zh.prompt == zh.data.hops[0].title + "".join(f"的{hop.relation}" for hop in zh.data.hops) + "是什么？"
    assert "world0-train-0-en-3" in tasks


def test_distribution_of_questions() -> None:
    assert len(world_tasks(WikiConfig(), "test")) == 120 * 20
    tasks = list(world_tasks(WikiConfig(languages=LANGUAGES), "test"))
    assert len(tasks) == 120 * 2 * 20
    assert set(Counter(task.level for task in tasks).values()) == {1200}
    confusable = {*MISTAKES, *(RELATIONS[relation] for relation in MISTAKES)}
    share = sum(any(hop.relation in confusable for hop in task.data.hops) for task in tasks) / len(tasks)
    assert 0.45 < share < 0.6
    assert 0.05 < sum(task.data.answer.isdecimal() for task in tasks) / len(tasks) < 0.3
    assert median(task.level + 2 for task in tasks) >= 4
    assert Counter(task.data.answer for task in tasks).most_common(1)[0][1] / len(tasks) < 0.01
    assert len({(task.language, task.data.partition, task.prompt) for task in tasks}) == len(tasks)


def test_task_ids_find_their_tasks(small: WikiConfig) -> None:
    tasks = world_tasks(small, "test")
    assert all(tasks.find(task.id) == task for task in tasks)
    for wrong in ("", "world0-test-0-en-12", "world0-test-4-en-0", "world0-test-0-fr-0", "world1-test-0-en-0",
                  "world0-train-0-en-0", "world0-test-00-en-0", "world0-test-0-en-", "world0-test-²-en-0"):  # fmt: skip
        assert tasks.find(wrong) is None, wrong
    assert tasks[-1] == tasks[len(tasks) - 1]
    assert tasks[1:3] == [tasks[1], tasks[2]]
    with pytest.raises(IndexError):
        tasks[len(tasks)]
    with pytest.raises(SettingsError, match="no split 'dev'"):
        world_tasks(small, "dev")


def test_one_language_and_some_hops_only() -> None:
    config = WikiConfig(train_worlds=2, languages=("zh",), min_hops=2, max_hops=3)
    tasks = list(world_tasks(config, "train"))
    assert {task.language for task in tasks} == {"zh"}
    assert Counter(task.level for task in tasks) == {2: 20, 3: 20}
