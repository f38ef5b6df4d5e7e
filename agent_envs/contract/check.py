"""The contract of every text environment, to be called on ours and on yours: ``check_text_env(MyEnv)``.

Each check raises `ContractError` with one line that says what is wrong and what was expected. A passing environment can
be trained on, searched with forks, sent to other processes and replayed exactly.
"""

import pickle
import time
import warnings
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

from agent_envs.contract.assertions import ContractError as ContractError
from agent_envs.contract.assertions import Make, frozen, idle, need, next_turn, sample, step
from agent_envs.contract.oracle import check_oracle
from agent_envs.contract.thoughts import check_thoughts
from agent_envs.core import SPLITS, Task, TextEnv

HOSTILE = (
    "",
    " \n\t ",
    "\x00\x1b[31m\u202e",
    "\ud800 lone surrogate",
    "<action>",
    "</action><action></action>",
    "<think><think></think><action>(</action>",
    "<|im_end|><|endoftext|></s>[INST]",
    "（" * 500 + "）" * 500,
    "{0} {1:x} %s %(a)s {{}}",
    "🙂" * 50 + "é" * 50 + "动作：",
)
_LONG = 200_000
_SECONDS = 2.0
_WITHOUT_EXPERT = 4
"""Turns that are replayed of an environment that has no expert."""


def check_text_env(env: TextEnv | Make, *, tasks: int = 4, seed: int = 0) -> None:
    """Run all checks. `env` is an instance, or a class or function that makes one; `tasks` are played per split."""
    if isinstance(env, TextEnv):
        copy = frozen(env)
        make: Make = lambda: pickle.loads(copy)  # noqa: E731
    else:
        make = env
    for check in CHECKS:
        check(make, tasks, seed)


def check_declaration(make: Make, tasks: int, seed: int) -> None:
    """Name, frozen settings with a docstring-able field each, a help that names every action."""
    env = make()
    need(isinstance(getattr(type(env), "name", None), str), env, "the class needs a str `name`")
    config = type(env.config)
    is_frozen = is_dataclass(config) and config.__dataclass_params__.frozen  # type: ignore[attr-defined]
    need(config is env.Config and is_frozen, env, "`Config` must be a frozen dataclass, and `config` an instance of it")
    need("max_turns" in [field.name for field in fields(config)], env, "`Config` needs the field max_turns")
    env.reset(seed=seed)
    prompt, language = env.system_prompt(), env.task.language
    for verb in env.grammar.verbs:
        need(verb.call(language) in prompt, env, f"the system prompt does not show the action {verb.name}")


def check_gymnasium(make: Make, tasks: int, seed: int) -> None:
    """Gymnasium's own checker, with warnings as errors."""
    env = make()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            check_env(env, skip_render_check=True)
        except Exception as error:
            raise ContractError(f"{env.name}: gymnasium's check_env says: {error}") from error


def check_tasks(make: Make, tasks: int, seed: int) -> None:
    """Splits are disjoint, lists are deterministic, an id finds its task."""
    env, other = make(), make()
    seen: dict[str, str] = {}
    for split in SPLITS:
        result = env.tasks(split)
        need(len(result) > 0, env, f"the {split} split has no task")
        for index in range(min(len(result), 200)):
            task = result[index]
            need(
                task.split == split and task.language in ("en", "zh") and task.level >= 1, env, f"bad fields in {task}"
            )
            need(bool(task.prompt.strip()), env, f"task {task.id} has an empty prompt")
            need(task.id not in seen, env, f"task id {task.id} is in {seen.get(task.id)} and in {split}")
            seen[task.id] = split
            need(task == other.tasks(split)[index], env, f"task {index} of {split} differs between two makes")
            need(result.find(task.id) == task, env, f"tasks({split!r}).find({task.id!r}) is not that task")
            content = f"{task.prompt}\0{task.data!r}"
            need(seen.setdefault(content, split) == split, env, f"task {task.id} is also in {seen[content]}")


def check_reset(make: Make, tasks: int, seed: int) -> None:
    """Reset shows the wanted task, draws from the wanted split, and repeats itself under a seed."""
    env, other = make(), make()
    for split in SPLITS:
        task = env.tasks(split)[0]
        for wanted in (task, task.id):
            prompt, info = env.reset(options={"task": wanted})
            need(prompt == task.prompt and env.task == task, env, f"reset with task {task.id} shows another one")
            need(info.get("task") == task.id, env, "the info of reset must hold the task's id under 'task'")
        env.reset(seed=seed, options={"split": split})
        need(env.task.split == split, env, f"reset with split {split} drew a task of {env.task.split}")
    need(env.reset(seed=seed) == other.reset(seed=seed), env, "the same seed drew different tasks")
    drawn = {make().reset(seed=at)[1]["task"] for at in range(12)}
    need(len(drawn) > 1 or len(env.tasks("train")) == 1, env, "twelve seeds draw one task: use np_random")


def check_expert(make: Make, tasks: int, seed: int) -> None:
    """The expert earns full marks, changes nothing by being asked, and its flawed twin plays to the end.

    An environment without an expert passes.
    """
    env = make()
    if not env.has_expert:
        return
    for task in sample(env, tasks):
        env.reset(seed=seed, options={"task": task})
        total, over = 0.0, False
        info: dict[str, Any] = {}
        while not over:
            turn = env.expert()
            need(turn == env.expert(), env, "asking the expert changes what it answers")
            _, reward, terminated, truncated, info = step(env, turn)
            need(not info["invalid"], env, f"the expert's turn {turn!r} is invalid: {info['error']}")
            total, over = total + reward, terminated or truncated
        need(info["success"] is True and total >= 1 - 1e-6, env, f"the expert gets {total:g} of 1 on task {task.id}")
        env.reset(seed=seed, options={"task": task})
        rng, over = np.random.default_rng(seed), False
        while not over:
            _, _, terminated, truncated, _ = step(env, env.expert(flaw=1.0, rng=rng))
            over = terminated or truncated


def check_any_text(make: Make, tasks: int, seed: int) -> None:
    """Any Unicode text is an action: refused at most, never an exception, and without effect on the task."""
    env = make()
    env.reset(seed=seed)
    verb = env.grammar.verbs[0].name if env.grammar.verbs else "ANSWER"
    for text in (*HOSTILE, *(verb + args for args in ("()", "(\ud800\x00)", "(" * 99)), "\\boxed{" * 99):
        env.reset(seed=seed)
        wish = next_turn(env)
        try:
            info = step(env, text)[4]
        except Exception as error:
            raise ContractError(f"{env.name}: the action {text[:40]!r} raised {error!r}") from error
        need(not info["invalid"] or bool(info["error"]), env, "an invalid action needs its reason in info['error']")
        if info["invalid"] and info["success"] is None:
            need(next_turn(env) == wish, env, f"the invalid action {text[:40]!r} changed the state")
    for piece in ("(", "<action>", "<think>", "a\n", "X(1)\n", "，", "é🙂"):
        env.reset(seed=seed)
        began = time.process_time()  # of a busy machine nobody is to blame
        step(env, piece * (_LONG // len(piece)))
        need(time.process_time() - began < _SECONDS, env, f"{_LONG} characters of {piece!r} take too long")


def check_turn_limit(make: Make, tasks: int, seed: int) -> None:
    """Turns that are part of the task end it, and the turn limit truncates; nothing is played after the end."""
    env = make()
    try:
        make().step("x")
    except ResetNeeded:
        pass
    else:
        raise ContractError(f"{env.name}: step before reset must raise gymnasium.error.ResetNeeded")
    env.reset(seed=seed)
    limit = _limit(env)
    for turn in range(1, limit + 1):
        _, _, terminated, truncated, info = step(env, idle(env))
        need(info["invalid"] or bool(env.openings), env, "a turn without an action must be invalid")
        last = turn == limit
        ends = (last, False) if env.task_turns else (False, last)
        need((terminated, truncated) == ends, env, f"turn {turn} of {limit} ends wrongly")
        need(info["success"] is (False if last else None), env, "success is None until the end, then a bool")
    try:
        env.step("x")
    except ResetNeeded:
        return
    raise ContractError(f"{env.name}: step after the end must raise gymnasium.error.ResetNeeded")


def check_replay(make: Make, tasks: int, seed: int) -> None:
    """The same seed and turns give the same episode, in a fork and after pickling too."""
    env = make()
    for task in sample(env, tasks):
        turns = _turns(env, task, seed)
        want = _replay(env, turns, task, seed)
        need(want == _replay(make(), turns, task, seed), env, f"task {task.id} does not replay exactly under a seed")
        for cut in range(len(turns)):
            env.reset(seed=seed, options={"task": task})
            for turn in turns[:cut]:
                env.step(turn)
            twin, copy = env.fork(), pickle.loads(frozen(env))
            for text in (idle(env), *turns[cut:]):  # the twin goes elsewhere; the original must not notice
                if not twin._over:
                    twin.step(text)
            twin.np_random.random(7)
            twin.reset(seed=seed + 1)
            rest = [step(env.fork(), turns[cut]), *(step(env, turn) for turn in turns[cut:])]
            need(rest[1:] == want[cut:], env, f"a fork after turn {cut} of {task.id} disturbs its origin")
            need(rest[0] == want[cut], env, f"a fork after turn {cut} of {task.id} goes on differently")
            need(
                [step(copy, turn) for turn in turns[cut:]] == want[cut:],
                env,
                f"a pickle after turn {cut} of {task.id} goes on differently",
            )
    env.reset(seed=seed)
    same = env.fork().np_random.random() == env.np_random.random()
    need(same, env, "a fork must copy np_random, not share or renew it")


def check_close(make: Make, tasks: int, seed: int) -> None:
    """Close is idempotent."""
    env = make()
    env.reset(seed=seed)
    for _ in range(2):
        try:
            env.close()
        except Exception as error:
            raise ContractError(f"{env.name}: close must be callable twice, but raised {error!r}") from error


def _turns(env: TextEnv, task: Task, seed: int) -> list[str]:
    """The expert's turns, or those of nobody, with a refused one in between, as far as the turn limit allows."""
    env.reset(seed=seed, options={"task": task})
    turns, over = [], False
    while not over:
        turns.append(next_turn(env))
        over = any(env.step(turns[-1])[2:4]) or (not env.has_expert and len(turns) == _WITHOUT_EXPERT)
    return [turns[0], idle(env), *turns[1:]] if 1 < len(turns) < _limit(env) else turns


def _limit(env: TextEnv) -> int:
    """After how many turns an episode of the present task is over at the latest."""
    return env.task_turns or env.max_turns


def _replay(env: TextEnv, turns: list[str], task: Task, seed: int) -> list[Any]:
    env.reset(seed=seed, options={"task": task})
    return [step(env, turn) for turn in turns]


CHECKS = (
    check_declaration,
    check_gymnasium,
    check_tasks,
    check_reset,
    check_turn_limit,
    check_any_text,
    check_expert,
    check_replay,
    check_oracle,
    check_thoughts,
    check_close,
)
