"""The expert, and what a small model learns from: repairs, mistakes that are taken back, words and exercises."""

import re
from dataclasses import replace

import numpy as np
from small_tasks import REPAIR, TOTAL, SmallEnv, do, small, started

from agent_envs.actions import Action, render
from agent_envs.code.arguments import old_and_new
from agent_envs.code.config import CodeConfig
from agent_envs.code.env import CodeEnv
from agent_envs.code.exercises import _names, renamed
from agent_envs.code.view import text_of
from agent_envs.core import Exercise, Task


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


def test_a_folder_in_the_place_of_a_file_can_only_be_taken_back() -> None:
    env = small()
    env.reset(options={"task": REPAIR, "oracle": True})
    (name,) = env.task.data.files
    program = f"import os\nos.remove({name!r})\nos.mkdir({name!r})\nopen('{name}/x', 'w').write('x')\n"
    do(env, "CREATE", "turn.py", program)
    *_, info = env.step(render("RUN", "turn.py"))
    assert any(file.startswith(f"{name}/") for file in env._state.now.files) and info["oracle"] is not None
    assert env.grammar.parse(env.expert()).name == "UNDO"


def test_the_flawed_expert_tries_takes_back_and_gives_up() -> None:
    env = small()
    task = env.tasks("train")[0]
    runs = [played(env, task, 0.5, seed) for seed in range(60)]
    assert 6 <= sum(success for _, _, success in runs) <= 36
    assert any(names == ["VIEW", "TEST", "SUBMIT"] for names, _, _ in runs)
    assert any("UNDO" in names for names, _, _ in runs) and any(names.count("REPLACE") > 1 for names, _, _ in runs)
    assert not any(success for names, _, success in runs if "REPLACE" not in names)
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


def repaired(lines: list[str], action: Action) -> list[str]:
    """The lines after a REPLACE of a part of one of them, or an EDIT that puts one in."""
    body = action.body or ""
    if action.name == "EDIT":
        at, behind = (int(part) - 1 for part in action.args.split(":"))
        assert behind == at - 1 and 0 <= at <= len(lines) and body.count("\n") == 1
        return [*lines[:at], body.removesuffix("\n"), *lines[at:]]
    old, new = (part.removesuffix("\n") for part in old_and_new(body))
    at = int(action.args) - 1
    assert action.name == "REPLACE" and lines[at].count(old) == 1
    return [*lines[:at], lines[at].replace(old, new), *lines[at + 1 :]]


def test_exercises_mend_a_program_bug_by_bug() -> None:
    env = small()
    task = env.tasks("train")[0]
    rng = np.random.default_rng(0)
    shown, values = len(task.data.visible), {repr(case.expected) for case in (*task.data.visible, *task.data.hidden)}
    named, counts, whole, put_in, missed = list[str](), [], 0, 0, list[str]()
    for _ in range(120):
        drill = env.drill(task, rng)
        assert drill is not None
        text, turns = drill
        rows = text.split("\n")
        lines = [row.partition("|")[2] for row in rows[1:]]
        named.append(rows[1])
        given = [turn for turn in turns if not turn.wanted]
        undos = [turn for turn in turns if turn.wanted == render("UNDO")]
        repairs = [turn for turn in turns if turn.wanted and turn not in undos]
        assert rows[0] == f"main.py: {len(lines)} lines"
        assert len(undos) == len(repairs) <= 4 and turns[-1] == undos[-1]
        assert set(undos) == {Exercise("", render("UNDO"), "undone: main.py")}
        looks = [turn.seen.split("\n") for turn in given if turn.given == render("TEST")]
        assert len(looks) == len(repairs) + 1, "one before and after each"
        for look in looks:
            said = [row.partition(": ")[2] for row in look[:-1]]
            assert len(said) == shown > said.count("ok") and set(said) <= {"ok", *values}
            assert look[-1] == f"{said.count('ok')} of {shown} ok"

        def opened(lines: list[str] = lines) -> None:
            files = {"main.py": text_of(lines)}
            env.reset(options={"task": replace(task, data=replace(task.data, files=files))})
            do(env, "VIEW")

        for turn in given:
            if env.grammar.parse(turn.given).name == "REPLACE":
                opened()
                assert env.step(turn.given)[0] == turn.seen
                missed.append(re.sub(r"found \d+ times.*", "found too often", turn.seen.split("\n")[0]))
        assert len({repair.wanted for repair in repairs}) == len(repairs), "none is made twice"
        actions = [env.grammar.parse(repair.wanted) for repair in repairs]
        for repair, action in zip(repairs, actions, strict=True):
            compile("\n".join(repaired(lines, action)), "changed", "exec")
            opened()
            assert env.step(repair.wanted)[0] == repair.seen
        put_in += sum(action.name == "EDIT" for action in actions)
        assert sum("-=" in repair.wanted and "+=" in repair.wanted for repair in repairs) == 1, "the task's own bug"
        mended = lines
        for action in sorted(actions, key=lambda action: -int(action.args.split(":")[0])):  # numbers before stay right
            mended = repaired(mended, action)
        whole += re.sub(r"\w+", "x", "\n".join(mended)) == re.sub(r"\w+", "x", TOTAL.rstrip("\n"))
        counts.append(len(repairs))
    assert len(set(named)) > 40 and 40 < named.count("1|" + TOTAL.split("\n")[0]) < 80, "half keep their names"
    assert set(counts) == set(range(1, 5)) and 10 < put_in < sum(counts) / 4
    assert set(missed) == {"not found", "nothing changed", "found too often"}
    assert 100 < len(missed) < 400
    assert whole >= 108, "all repairs together give the program that was asked for, but where one bug hid another"


def test_an_exercise_reads_like_an_episode() -> None:
    env = small()
    task = replace(env.tasks("train")[0], language="zh")
    rng = np.random.default_rng(0)
    whole = [drill for drill in (env.drill(task, rng) for _ in range(60)) if drill and "\n5|" in drill[0]]
    texts, turns = zip(*whole, strict=True)
    # A repair, a look at the checks, and what takes the repair back.
    on_line_4 = [
        trio for told in turns for trio in zip(told, told[1:], told[2:], strict=False) if "(4)" in trio[0].wanted
    ]
    env.reset(options={"task": task})
    assert do(env, "查看").split("\n")[0] == texts[0].split("\n")[0]
    edited, undone = do(env, "替换", "4", "-\n=======\n+\n"), do(env, "撤销")
    assert on_line_4 and {undo.seen for _, _, undo in on_line_4} == {undone}
    assert {look.given for _, look, _ in on_line_4} == {"<think></think><action>TEST()</action>"}
    numbers = [row.partition("|")[0] for row in edited.split("\n")]
    assert all([row.partition("|")[0] for row in tried.seen.split("\n")] == numbers for tried, *_ in on_line_4)


def test_exercises_name_the_file_where_there_are_several() -> None:
    env = small()
    task = next(task for task in env.tasks("train")[:9] if task.data.statement.startswith("area"))
    drill = env.drill(task, np.random.default_rng(0))
    assert drill is not None and "1|from shape import side\n" in drill[0]
    turns = [env.grammar.parse(exercise.given + exercise.wanted) for exercise in drill[1]]
    assert all(turn.args.startswith("main.py, ") for turn in turns if turn.name == "REPLACE")


def test_other_names_are_the_same_all_over() -> None:
    first, second = renamed((TOTAL, TOTAL.replace("+=", "-=")), np.random.default_rng(0))
    assert first != TOTAL and first.replace("+=", "-=") == second
    assert len(_names(first)) == len(_names(TOTAL)) == 4 and not _names(first) & _names(TOTAL)
    assert renamed(("pass\n",), np.random.default_rng(0)) == ["pass\n"]


def test_the_demonstrator_never_tries_the_same_twice() -> None:
    env, rng = small(turns=40), np.random.default_rng(0)
    lengths = []
    for _ in range(10):
        tried = []
        env.reset(options={"task": env.tasks("train")[0]})
        for _ in range(60):
            turn = env.expert(flaw=0.9, rng=rng)
            action = env.grammar.parse(turn)
            if action.name == "SUBMIT":
                continue  # asked again until it does not give up
            if action.name == "REPLACE":
                tried.append((action.args, action.body))
            env.step(turn)
        assert len(tried) == len(set(tried))
        lengths.append(len(tried))
    assert max(lengths) > 2
