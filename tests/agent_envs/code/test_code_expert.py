"""The expert, and what a small model learns from: repairs, mistakes that are taken back, words and exercises."""

from __future__ import annotations

import numpy as np
from small_tasks import SmallEnv, do, small, started

from agent_envs.code.config import CodeConfig
from agent_envs.code.env import CodeEnv
from agent_envs.core import Task


def played(env: SmallEnv, task: Task, flaw: float = 0.0, seed: int = 0) -> tuple[list[str], float, bool]:
    """Names of the expert's actions, what they earned, and the verdict."""
    rng = np.random.default_rng(seed)
    env.reset(options={"task": task})
    names: list[str] = []
    while True:
        turn = env.expert(flaw=flaw, rng=rng)
        _, earned, terminated, truncated, info = env.step(turn)
        assert not info["invalid"] and not truncated
        names.append(info["action"])
        if terminated:
            return names, earned, info["success"]


def test_the_expert_repairs_every_kind_of_task_and_looks_at_the_checks() -> None:
    env = small()
    for task in env.tasks("train")[:9]:
        names, earned, success = played(env, task)
        assert success and earned == 1.0 and len(names) >= 5
        assert names[-2:] == ["TEST", "SUBMIT"] and names.index("TEST") < names.index("EDIT")


def test_the_expert_leaves_out_looks_where_turns_are_few() -> None:
    env = small(turns=2)
    assert played(env, env.tasks("train")[0]) == (["VIEW", "EDIT"], 1.0, True)
    assert played(small(turns=1), env.tasks("train")[0])[1:] == (0.0, False)


def test_the_expert_takes_back_what_was_wrong() -> None:
    env = started()
    do(env, "VIEW")
    do(env, "EDIT", "2", "    found = 7\n")
    assert env.grammar.parse(env.expert()).name == "UNDO"
    do(env, "EDIT", "5", "    return item\n")
    do(env, "UNDO")
    do(env, "UNDO")
    assert env.grammar.parse(env.expert()).name == "EDIT"


def test_the_flawed_expert_tries_takes_back_and_gives_up() -> None:
    env = small()
    task = env.tasks("train")[0]
    runs = [played(env, task, 0.65, seed) for seed in range(20)]
    assert 2 <= sum(success for _, _, success in runs) <= 18
    assert any("UNDO" in names for names, _, _ in runs) and any(names.count("EDIT") > 2 for names, _, _ in runs)
    assert not any(success for names, _, success in runs if "EDIT" not in names)
    assert all(success for _, _, success in (played(env, task, 0.0, seed) for seed in range(3)))  # the control


def test_the_words_that_a_tokenizer_keeps_whole() -> None:
    env = CodeEnv(CodeConfig(sandbox="namespace"))
    words = env.lexicon()
    assert len(words) == len(set(words)) and words == CodeEnv(CodeConfig(sandbox="namespace")).lexicon()
    for language in ("en", "zh"):
        task = next(task for task in env.tasks("train")[:20] if task.language == language)
        env.reset(options={"task": task})
        assert env.system_prompt() in words
    assert {"    ", " += ", "return ", "<think></think><action>VIEW()</action>", "</think><action>编辑("} <= set(words)
    assert not any(len(word) == 1 and word.isalpha() for word in words)  # it would cut the others


def test_the_exercise_is_to_write_lines_as_they_are() -> None:
    env = small()
    task = env.tasks("train")[0]
    drill = env.drill(task, np.random.default_rng(0))
    assert drill is not None
    text, exercises = drill
    assert text.startswith("main.py: 5 lines\n1|def total(items):\n2|    found = 0") and len(exercises) == 4
    for given, rest in exercises:
        action = env.grammar.parse(given + rest)
        line = text.split("\n")[int(action.args)]
        assert given.endswith(f"{action.args}|") and action.thought == line and action.body == f"{line[2:]}\n"
