"""Agents that did not learn, for any environment: the scripted expert, a random one, one that is shown nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from agent_envs.actions import render
from agent_envs.adapters.babyai.env import ACTIONS, BabyAIEnv
from agent_envs.adapters.household.env import HouseholdEnv
from agent_envs.adapters.textworld.env import TextWorldEnv
from agent_envs.adapters.textworld_express.env import TextWorldExpressEnv, played
from agent_envs.adapters.textworld_express.view import useful
from agent_envs.code.env import CodeEnv
from agent_envs.core import Task, TextEnv
from agent_envs.math.env import MathEnv
from agent_envs.puzzle.env import PuzzleEnv
from agent_envs.research.env import ResearchEnv
from agent_envs.wiki.env import WikiEnv
from agent_envs.wiki.relations import NUMBERS, RELATIONS
from benchmarks.wiki_baselines import FirstLinkAgent, play
from runners.evaluation.random_agents import random_agent
from runners.evaluation.scripted import Agent, Scripted
from runners.statistics.intervals import Interval, bootstrap

UNCHANGED = "submits at once"


def random_move(env: PuzzleEnv, rng: np.random.Generator) -> str:
    """Any legal move of a puzzle; where there is none, the last one is taken back."""
    moves = [render(env.puzzle.verb.name, move) for move in env.legal_moves()]
    return moves[int(rng.integers(len(moves)))] if moves else render("UNDO")


def random_choice(env: TextWorldExpressEnv, rng: np.random.Generator) -> str:
    """Any of the actions that matter."""
    actions = useful(played(env._state).reply)
    return render("ACT", actions[int(rng.integers(len(actions)))])


def random_walk(rng: np.random.Generator) -> str:
    """A turn to either side, or a step."""
    return render("ACT", ACTIONS[int(rng.integers(3))])


@dataclass
class OneTool:
    """The scripted expert of research with one of its tools taken away."""

    env: ResearchEnv
    rng: np.random.Generator
    reads: bool
    """True: it reads the fact and submits it. False: it guesses the facts and computes with them."""

    def begin(self, task: Task) -> None:
        pass

    def act(self, observation: str) -> str:
        stages = self.env.task.data.stages
        if self.reads:
            turn = self.env.expert()
            return render("SUBMIT", str(stages[0].fact)) if "PYTHON" in turn else turn
        value = 0
        for stage in stages:
            low, high = NUMBERS[english(stage.hops[-1].relation)]
            value = replace(stage, fact=int(self.rng.integers(low, high + 1))).values(value)[-1]
        return render("SUBMIT", str(value))


def english(relation: str) -> str:
    """The key of a relation, as a page writes it in any language."""
    return next(key for key in NUMBERS if relation in (key, RELATIONS[key]))


def baselines(env: TextEnv) -> dict[str, Callable[[], Agent]]:
    """Agents without a model, by name."""
    agents: dict[str, Callable[[], Agent]] = {"scripted expert": lambda: Scripted(env.expert)} if env.has_expert else {}
    rng = np.random.default_rng(0)
    chance: dict[str, Callable[[], Agent]] = {"random agent": lambda: random_agent(env, rng)}
    if isinstance(env, ResearchEnv):
        agents |= chance
        agents["reads, computes nothing"] = lambda: OneTool(env, rng, reads=True)
        return agents | {"computes, reads nothing": lambda: OneTool(env, rng, reads=False)}
    if isinstance(env, WikiEnv):
        return agents | chance | {"first-link agent": FirstLinkAgent}
    if isinstance(env, PuzzleEnv):
        return agents | {"random agent": lambda: Scripted(partial(random_move, env, rng))}
    if isinstance(env, HouseholdEnv | MathEnv | TextWorldEnv):
        return agents | chance
    if isinstance(env, BabyAIEnv):
        return agents | {"random agent": lambda: Scripted(partial(random_walk, rng))}
    if isinstance(env, TextWorldExpressEnv):
        return agents | {"random agent": lambda: Scripted(partial(random_choice, env, rng))}
    if isinstance(env, CodeEnv):
        return agents | chance | {UNCHANGED: lambda: Scripted(partial(render, "SUBMIT"))}
    return agents


def success(env: TextEnv, agent: Agent, tasks: Sequence[Task]) -> Interval:
    """Share of the tasks that an agent without a model solves."""
    return bootstrap([float(play(env, agent, task)[1]) for task in tasks])


def blanked(env: type[TextEnv]) -> type[TextEnv]:
    """The environment with every observation taken away, and where there are none anyway, or the task's text alone says
    all, that as well."""
    told = issubclass(env, MathEnv | PuzzleEnv)

    def reset(self: TextEnv, **given: Any) -> tuple[str, dict[str, Any]]:
        prompt, info = env.reset(self, **given)
        return "" if told else prompt, info

    def step(self: TextEnv, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "", *env.step(self, action)[1:]

    return type(f"Blanked{env.__name__}", (env,), {"reset": reset, "step": step})
