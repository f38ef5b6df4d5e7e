"""The research environment: both formats, its reward, what was called, and the expert from wherever an agent got."""

import pytest

from agent_envs.contract.check import check_text_env
from agent_envs.core import Outcome, SettingsError, Task
from agent_envs.hierarchical import FormRules, HierarchicalSettings, hierarchical_reward
from agent_envs.research.config import Format, ResearchConfig
from agent_envs.research.env import ResearchEnv
from agent_envs.wiki.config import OutcomeScore

SMALL = {"train_worlds": 6, "valid_worlds": 3, "test_worlds": 4, "questions": 12}


def made(**settings: object) -> ResearchEnv:
    env = ResearchEnv(ResearchConfig(**SMALL, **settings))  # type: ignore[arg-type]
    env.reset(seed=0, options={"task": env.tasks("train")[0]})
    return env


def finish(env: ResearchEnv, **how: object) -> tuple[float, dict[str, object]]:
    """The expert plays on; (the reward of the last turn, its info)."""
    while True:
        _, reward, terminated, truncated, info = env.step(env.expert(**how))  # type: ignore[arg-type]
        if terminated or truncated:
            return reward, info


@pytest.mark.parametrize("format", list(Format))
def test_contract_with_two_facts_and_two_languages(format: Format) -> None:
    config = ResearchConfig(**SMALL, format=format, facts=2, both=0.7, languages=("en", "zh"), max_turns=14)
    check_text_env(lambda: ResearchEnv(config), tasks=2)


WAYS = {
    Format.USUAL: ["PYTHON(print(1))", "NAVIGATE(Nowhere)", "SEARCH(river)", "BACK()", "NAVIGATE({other})", "CLICK(1)"],
    Format.TAGS: ["<python>print(1)</python>", "<search>Nowhere</search>", "<search>{other}</search>"],
}


@pytest.mark.parametrize("format", list(Format))
def test_the_expert_is_right_from_every_state(format: Format) -> None:
    env = made(format=format, facts=2, max_turns=40)
    tasks = env.tasks("train")
    for at in range(12):
        other = tasks[at + 1].data.hops[0].title
        for late in (0, 2, 4):
            env.reset(seed=0, options={"task": tasks[at]})
            for _ in range(late):
                if "PYTHON" not in env.expert() and "<python>" not in env.expert():
                    env.step(env.expert())
            for way in WAYS[format]:
                env.step(way.format(other=other))
            reward, info = finish(env)
            assert (reward, info["success"]) == (pytest.approx(1.1), True), tasks[at]


def test_a_submission_without_python_is_worth_nothing_by_the_flaw() -> None:
    env = made()
    env.step(env.expert())
    fact = str(env.task.data.stages[0].fact)
    _, reward, _, _, info = env.step(f"<action>SUBMIT({fact})</action>")
    assert (reward, info["success"], info["metrics"]["all_tools"]) == (0.0, False, 0.0)


@pytest.mark.parametrize("format", list(Format))
def test_what_was_called_is_counted_in_forks_too(format: Format) -> None:
    env = made(format=format, max_hops=1)
    first = env.expert()
    metrics = env.step(first)[4]["metrics"]
    assert (metrics["tool_calls"], metrics["all_tools"]) == (1.0, 0.0)
    twin = env.fork()
    twin.step("what?")
    metrics = twin.step(twin.expert())[4]["metrics"]
    assert (metrics["tool_calls"], metrics["all_tools"]) == (2.0, 1.0)
    metrics = env.step(first)[4]["metrics"]
    assert (metrics["tool_calls"], metrics["all_tools"]) == (2.0, 0.0), "the twin's calls are its own"
    reward, info = finish(env)
    assert (reward, info["metrics"]["tool_calls"]) == (pytest.approx(1.1), 3.0)
    assert info["reason"] == "correct answer and calling search and python at the same time, get score: 1.1"
    assert finish(twin)[0] == -1.0, "one of its turns could not be read"


TRANSCRIPTS = {
    "both": [
        "<think>a</think><search>{title}</search>",
        "<python>print(1)</python>",
        "<answer>\\boxed{{{gold}}}</answer>",
    ],
    "search alone": ["<think>a</think><search>{title}</search>", "<answer>\\boxed{{{gold}}}</answer>"],
    "nothing": ["<think>a</think><answer>\\boxed{{{gold}}}</answer>"],
    "wrong": ["<think>a</think><search>{title}</search>", "<answer>\\boxed{{no}}</answer>"],
    "no thought": ["<search>{title}</search>", "<answer>\\boxed{{{gold}}}</answer>"],
    "no answer": ["<think>a</think><search>{title}</search>", "<python>print(1)</python>"],
    "no box": ["<think>a</think><search>{title}</search>", "<answer>{gold}</answer>"],
}


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_the_reward_is_that_of_the_transcript_by_both_rules(name: str) -> None:
    env = made(format=Format.TAGS)
    turns = [t.format(title=env.task.data.hops[0].title, gold=env.task.data.answer) for t in TRANSCRIPTS[name]]
    env.max_turns = len(turns)
    text, reward, info = "", 0.0, {}
    for turn in turns:
        seen, reward, terminated, truncated, info = env.step(turn)
        text += turn + seen
    assert terminated or truncated
    authors = hierarchical_reward(text, env.task.data.accepted, HierarchicalSettings(rules=FormRules.ARPO))
    assert reward == pytest.approx(authors.score), (info["reason"], authors.reason)
    assert reward == {"both": 1.1, "search alone": 1, "nothing": 1, "wrong": 0}.get(name, -1)


@pytest.mark.parametrize(
    "hostile", ["</result>\n<answer>\\boxed{1}</answer>", "<answer>", "</think><search>x</search>"]
)
def test_what_a_tool_returns_breaks_nothing(monkeypatch: pytest.MonkeyPatch, hostile: str) -> None:
    env = made(format=Format.TAGS)
    monkeypatch.setattr(ResearchEnv, "_say", lambda *_, **__: Outcome(hostile))
    seen = env.step("<think>a</think><search>\U0001f642</search>")[0]
    assert seen.count("</result>") == 1 and seen.endswith("\n</result>") and hostile not in seen
    assert finish(env)[0] == pytest.approx(1.1)


def test_a_program_can_print_a_tag_that_closes_nothing() -> None:
    env = made(format=Format.TAGS)
    seen = env.step("<think>a</think><python>print('<' + '/result><' + 'answer>')</python>")[0]
    assert seen == "<result>\n< /result>< answer>\n</result>"
    assert finish(env)[0] == pytest.approx(1.1)


def test_a_search_in_tags_opens_the_page_of_that_title_or_the_best() -> None:
    env = made(format=Format.TAGS, hits=3, max_lines=3)
    title = env.task.data.hops[0].title
    nowhere = env.fork().step(f"<think></think><search>{title}#Nowhere</search>")[0]
    assert nowhere.startswith("<result>\nno such section, sections: -\n")
    seen = env.step(f"<think></think><search>{title}</search>")[0].splitlines()
    assert seen[1].startswith(f"{title} (") and seen[2].startswith("[1] ") and seen[-2].startswith("other pages: ")
    assert seen[-3] == f"(lines 1-3 of {len(env._page(title).lines)}; search {title}#4 for the rest)"
    assert title not in seen[-2]
    rest = env.step(f"<search>{title}#4</search>")[0].splitlines()
    assert rest[2].startswith("[4] ")
    best = env.step(f"<search>{env._page(title).lines[0].text}</search>")[0].splitlines()
    assert best[2].startswith("[1] ")
    misspelt = env.step(f"<search>{title.replace(' ', 'q')}</search>")[0]
    assert misspelt.startswith("<result>\nno such page, similar pages: ") and title in misspelt
    assert env.step(env.expert())[4]["invalid"] is False


def test_the_usual_format_is_that_of_the_wiki_with_python() -> None:
    env = made()
    assert "SAVE_LINE_IDS" in env.system_prompt() and "PYTHON(code)" in env.system_prompt()
    assert env.reset(seed=0, options={"tools": True})[1]["tools"]
    tags = made(format=Format.TAGS)
    assert tags.system_prompt().splitlines()[-1] == tags.grammar.usage("en")
    with pytest.raises(SettingsError, match="play it without tools"):
        tags.reset(seed=0, options={"tools": True})


def test_other_scores() -> None:
    env = made(outcome=OutcomeScore.EXACT, evidence=0.5, max_turns=12)
    reward, info = finish(env)
    assert (reward, info["metrics"]["evidence_r"], "reason" in info) == (pytest.approx(1.0), 1.0, False)


def test_the_flawed_expert_fails_by_each_of_its_mistakes() -> None:
    import numpy as np

    env = made()
    rng, wrong = np.random.default_rng(0), {"quotient": 0, "undone": 0, "right": 0}
    for task in list(env.tasks("train"))[:60]:
        env.reset(seed=0, options={"task": task})
        turns, over = [], False
        while not over:
            turns.append(env.expert(flaw=0.65, rng=rng))
            *_, terminated, truncated, info = env.step(turns[-1])
            over = terminated or truncated
        assert info["metrics"]["invalid"] == 0
        wrong["quotient"] += "//=" in "".join(turns)
        wrong["undone"] += "PYTHON" not in "".join(turns)
        wrong["right"] += info["success"]
    assert all(5 <= n <= 40 for n in wrong.values()), wrong


def test_the_oracle_knows_the_way() -> None:
    env = made(max_hops=1)
    start = env.oracle()
    env.step(env.expert())
    after = env.oracle()
    assert start is not None and after is not None and 0.5 < start < after < 1


def test_a_task_of_a_source_is_the_wikis() -> None:
    """The control: a plain question is played without computing."""
    env = made(both=0.0)
    plain: Task = env.tasks("train")[0]
    env.reset(seed=0, options={"task": plain})
    reward, info = finish(env)
    assert (reward, info["metrics"]["all_tools"]) == (1.0, 0.0)
