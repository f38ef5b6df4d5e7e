"""The contract of an oracle: its value is a probability, and is only given on demand.

That the number is the right one is for the environment's own tests: play its agent, and compare.
"""

import numpy as np

from agent_envs.contract.assertions import Make, idle, need, next_turn, sample, step
from agent_envs.core import Task, TextEnv

_ROUNDING = 1e-9


def check_oracle(make: Make, tasks: int, seed: int) -> None:
    """In 0..1, 1 where the expert arrives, never lowered by the expert; 0 means that the expert cannot succeed either.

    A fork tells the same, asking changes nothing, and nothing is told to whom it is not meant. An environment without
    an oracle passes; without an expert, what it tells of one is not checked.
    """
    env = make()
    for task in sample(env, tasks):
        _, info = env.reset(seed=seed, options={"task": task, "oracle": True})
        need("oracle" in info, env, "reset must tell info['oracle'] when options['oracle'] asks for it")
        if env.oracle() is None:
            need(info["oracle"] is None, env, "an environment whose oracle() is None must tell None")
            continue
        if env.has_expert:
            _follow_expert(env, task, seed)
        _wander(env, task, seed)
    _need_silence(make, seed)


def _tell(env: TextEnv) -> float:
    """What the oracle says, which must be a chance, and the same twice and in a fork."""
    value = env.oracle()
    chance = isinstance(value, int | float) and not isinstance(value, bool) and -_ROUNDING <= value <= 1 + _ROUNDING
    need(chance, env, f"the oracle must tell a chance from 0 to 1, not {value!r}")
    assert value is not None
    need(env.oracle() == value, env, "asking the oracle changes what it tells")
    need(env.fork().oracle() == value, env, "a fork's oracle tells something else")
    return float(value)


def _follow_expert(env: TextEnv, task: Task, seed: int) -> None:
    env.reset(seed=seed, options={"task": task, "oracle": True})
    before, over = _tell(env), False
    while not over:
        wish = env.expert()
        need(_tell(env) == before and env.expert() == wish, env, "asking the oracle changes the state")
        _, _, terminated, truncated, info = step(env, wish)
        over = terminated or truncated
        after = info.get("oracle")
        need(over or after == _tell(env), env, f"info['oracle'] is {after!r}, not what oracle() tells")
        need(isinstance(after, float), env, f"info['oracle'] must be a float, not {after!r}")
        assert after is not None
        lowered = after < before - _ROUNDING
        need(not lowered, env, f"the expert's turn {wish[:40]!r} lowers the oracle from {before!r} to {after!r}")
        before = after
    need(before == 1, env, f"the expert's episode of task {task.id} must end with an oracle of 1, not {before!r}")


def _wander(env: TextEnv, task: Task, seed: int) -> None:
    """Plays with mistakes and idle turns; wherever the oracle sees no chance, the expert must find none."""
    rng = np.random.default_rng(seed)
    for share in (0.2, 0.6, 0.9):
        env.reset(seed=seed, options={"task": task})
        over = False
        while not over:
            if _tell(env) == 0 and env.has_expert:
                need(not expert_succeeds(env.fork()), env, "the oracle tells 0 where the expert still succeeds")
            lost = rng.random() < share or not env.has_expert
            text = idle(env) if lost else env.expert(flaw=0.5, rng=rng)
            over = any(env.step(text)[2:4])


def expert_succeeds(env: TextEnv) -> bool:
    """Whether the expert, from here on, plays to a success. The episode is over then."""
    while True:
        _, _, terminated, truncated, info = env.step(env.expert())
        if terminated or truncated:
            return bool(info["success"])


def _need_silence(make: Make, seed: int) -> None:
    """Whoever does not ask is told nothing, and whoever asks sees the same text."""
    episodes = []
    for wanted in (True, False):
        env = make()
        text, info = env.reset(seed=seed, options={"oracle": wanted})
        prompt, seen, over = env.system_prompt(), [text], False
        while not over:
            need(wanted or "oracle" not in info, env, "info['oracle'] must not be told unless it is asked for")
            text, _, terminated, truncated, info = step(env, next_turn(env))
            seen.append(text)
            over = terminated or truncated
        need(("oracle" in info) is wanted, env, "info['oracle'] must be told just where it is asked for")
        episodes.append((prompt, seen))
    need(episodes[0] == episodes[1], env, "asking for the oracle must not change what the agent sees")
