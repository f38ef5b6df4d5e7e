"""Random agents: what chance reaches in each environment.

Where an environment lists its valid turns (`TextEnv.valid_turns`), one of them is drawn uniformly. Where turns hold
free text, an agent for that environment draws plausible ones.
"""

from functools import partial

import numpy as np

from agent_envs.actions import render
from agent_envs.code.env import CodeEnv
from agent_envs.code.expert import changed, shortest
from agent_envs.code.hunks import hunks
from agent_envs.code.view import lines_of
from agent_envs.core import SettingsError, TextEnv
from agent_envs.math.env import MathEnv
from agent_envs.reasoning_gym.env import ReasoningGymEnv
from agent_envs.reasoning_gym.tasks import write
from agent_envs.research.env import ResearchEnv
from agent_envs.wiki.env import WikiEnv
from runners.evaluation.random_wiki import RandomAgent
from runners.evaluation.scripted import Agent, Scripted

ANSWERS = 50
"""Training tasks whose answers are drawn from."""


def random_agent(env: TextEnv, rng: np.random.Generator) -> Agent:
    """The random agent of an environment, for one episode or several. Raises SettingsError when it takes a turn in an
    environment that has none."""
    if isinstance(env, WikiEnv | ResearchEnv):
        return RandomAgent(rng)
    if isinstance(env, CodeEnv):
        return Scripted(partial(random_change, env, rng))
    if isinstance(env, MathEnv):
        return Scripted(partial(random_answer, rng))
    if isinstance(env, ReasoningGymEnv):
        return Scripted(partial(answer_of_another, env, rng))
    return Scripted(partial(valid_turn, env, rng))


def valid_turn(env: TextEnv, rng: np.random.Generator) -> str:
    """Any of the turns that are valid now. Raises SettingsError in an environment that does not list them."""
    turns = env.valid_turns()
    if not turns:
        raise SettingsError(f"{env.name} has no random agent: it does not list its valid turns")
    return turns[int(rng.integers(len(turns)))]


def random_answer(rng: np.random.Generator) -> str:
    """A number of two digits, at once."""
    return f"The answer is \\boxed{{{rng.integers(10, 100)}}}."


def answer_of_another(env: ReasoningGymEnv, rng: np.random.Generator) -> str:
    """The answer of a training task of the same data set."""
    tasks = env.tasks("train")
    answer = tasks[int(rng.integers(min(ANSWERS, len(tasks))))].data.answer
    return render("SUBMIT", write(answer))


def random_change(env: CodeEnv, rng: np.random.Generator) -> str:
    """A small change of a file, as bugs are made; it is taken back until all checks pass that can be seen."""
    now = env._situation()
    if now.before:
        if now.tested is None:
            return render("TEST")
        return render("SUBMIT" if all(now.tested) else "UNDO")
    names = sorted(now.now.files)
    name = names[0] if len(names) == 1 else names[int(rng.integers(len(names)))]
    text, called = now.now.files[name], name if len(names) > 1 else ""
    if not now.now.has_seen(name, 1, len(lines_of(text))):
        return render("VIEW", called)
    steps = (shortest(text, hunks(text, other)[0], called) for other in rng.permutation(changed(text)))
    return next((step.turn() for step in steps if step is not None), render("SUBMIT"))
