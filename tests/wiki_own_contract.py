"""What questions made of a wiki's own pages promise on every backend; a test file gives it a fixture ``own``: settings
with a crawl, whose wiki holds `ODD` beside other pages where ``odd`` says so."""

from dataclasses import replace
from pathlib import Path

import pytest
from wiki_cases import page

from agent_envs.core import SPLITS, Task
from agent_envs.wiki.config import WikiConfig
from agent_envs.wiki.env import WikiEnv
from agent_envs.wiki.own.stored import own_tasks

ODD = (
    page(
        "Two mayors",
        "Two mayors is a city.",
        "mayor: [[Ana]]",
        "mayor: [[Bo]]",
        "twin: [[Ana]]; [[Bo]]",
        "founded: 1900",
    ),
    page("Ana", 'motto: no "end|of" it)', "spouse: [[Bo]]", "founded: 1950", "seat: [[Two mayors]] and others"),
    page(
        "Bo",
        "Bo is a person.",
        "spouse: [[Ana]]",
        "born: 1901, or 1902",
        "motto: </think>",
        'river: [[O\'Neill ("R")]]',
    ),
    page('O\'Neill ("R")', "mouth: [[Ana]]", "source: [[Bo]]", "motto: (", "length: 17", aliases=("Oh", "Neill")),
)
"""Relations with two objects, and texts with quotes, brackets and the tags of a turn."""


def all_tasks(config: WikiConfig) -> dict[str, list[Task]]:
    env = WikiEnv(config)
    return {split: list(env.tasks(split)) for split in SPLITS}


def objects(env: WikiEnv, title: str, relation: str) -> list[str]:
    """All that a page states under a relation, read independently: where it links to, else its text."""
    page = env.backend.page(title, env._gold.partition)
    assert page is not None
    rows = [line for line in page.lines if line.text.partition(":")[0].casefold() == relation.casefold()]
    return [one for row in rows for one in ([link.title for link in row.links] or [row.text.partition(": ")[2]])]


def assert_apart(own: WikiConfig) -> None:
    """No page that a question begins with, and none of an answer, is in two splits."""
    env = WikiEnv(own)
    pages: dict[str, set[str]] = {}
    for split, tasks in all_tasks(own).items():
        assert len(tasks) >= 5
        named = pages.setdefault(split, set())
        for task in tasks:
            gold, last = task.data, task.data.hops[-1]
            page = env.backend.page(last.title, gold.partition)
            assert page is not None
            line = page.lines[last.line - 1]
            texts = {line.text[link.start : link.end]: link.title for link in line.links}
            answer = env.backend.resolve(texts[gold.answer], gold.partition) if gold.answer in texts else last.title
            named |= {gold.hops[0].title, str(answer)}
    assert sum(map(len, pages.values())) == len(set.union(*pages.values()))


class OwnContract:
    def test_every_question_is_answered_by_the_expert_and_by_a_query(self, own: WikiConfig) -> None:
        env = WikiEnv(own)
        tasks = [task for split in SPLITS for task in env.tasks(split)]
        assert len(tasks) >= 60 and len({task.prompt for task in tasks}) == len(tasks)
        for task in tasks:
            env.reset(options={"task": task})
            at = env._gold.hops[0].title
            for hop in env._gold.hops if env._gold.hops[0].relation else ():
                assert hop.title == at, "each hop leads to the next page"
                (found,) = objects(env, at, hop.relation)
                at = env.backend.resolve(found, env._gold.partition) or found
            over = False
            while not over:
                _, reward, terminated, truncated, info = env.step(env.expert())
                over = terminated or truncated
            assert info["success"] and reward == 1 and info["metrics"]["evidence_r"] > 0, task.prompt

    def test_no_page_of_a_beginning_or_an_answer_is_in_two_splits(self, own: WikiConfig) -> None:
        assert_apart(own)

    def test_the_same_questions_by_seed(self, own: WikiConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        first = all_tasks(own)
        monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path))
        again = own_tasks(replace(own, skill=0.7), WikiEnv(own).backend, "test")
        assert list(again) == first["test"] and all(again.find(task.id) == task for task in again)
        assert again.find("page0-test-en-99999") is None and again.find("page0-train-en-0") is None
        other = own_tasks(replace(own, seed=own.seed + 1), WikiEnv(own).backend, "test")
        assert [task.prompt for task in other] != [task.prompt for task in again]

    def test_two_objects_of_a_relation_are_never_asked_for(self, own: WikiConfig, odd: bool) -> None:
        prompts = [task.prompt for tasks in all_tasks(own).values() for task in tasks]
        assert not any(f"Two mayors's {asked}" in prompt for asked in ("mayor", "twin") for prompt in prompts)
        assert not any("Bo's born" in prompt or "Bo's motto" in prompt for prompt in prompts)
        if odd:  # the control: what has one object is asked for, on the same pages
            assert any("Two mayors's founded" in prompt for prompt in prompts)
            assert any("Bo's spouse" in prompt or "Ana's spouse" in prompt for prompt in prompts)
            assert any("O'Neill (\"R\")'s length" in prompt for prompt in prompts)
