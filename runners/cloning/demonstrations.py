"""Demonstrations of the scripted expert and reading exercises, as trees without branches."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agent_envs.actions import THINK, THINK_END
from agent_envs.core import Drill, TextEnv
from agent_envs.tools import as_call
from agents.rollout.react import ThoughtTurns
from agents.text.chat import Chat
from agents.tree import Kind, Node

Head = tuple[str, str, str]
"""(system, user, how the model's message begins). Where that is not empty, the turns are thought factors."""


@dataclass(frozen=True)
class Demonstration:
    """One episode."""

    head: Head
    turns: Sequence[tuple[str, str]]
    """(turn, observation)"""
    success: bool | None
    """The environment's verdict."""
    chances: Sequence[float | None]
    """The oracle's chance of success in each state, first and last included; None where it has none."""
    tools: Sequence[Mapping[str, Any]] = ()
    """Where actions are calls: what may be called."""


def demonstrate(
    env: TextEnv, task: Any, *, flaw: float, rng: np.random.Generator, oracle: bool = False, tools: bool = False
) -> Demonstration:
    """One episode of the scripted expert; ``oracle`` also records each state's chance of success. With ``tools`` its
    actions are calls."""
    user, info = env.reset(seed=0, options={"task": task, "oracle": oracle, "tools": tools})
    thoughts, shown = ThoughtTurns.of(info), info.get("tools", ())
    head = (info["instructions"] if tools else env.system_prompt(), user, thoughts.opening if thoughts else "")
    turns, chances, over = [], [info.get("oracle")], False
    while not over:
        text = env.expert(flaw=flaw, rng=rng)
        seen, _, terminated, truncated, info = env.step(text)
        turns.append((called(env, shown, text) if tools else text, seen))
        chances.append(info.get("oracle"))
        over = terminated or truncated
    return Demonstration(head, turns, info.get("success"), chances, shown)


def called(env: TextEnv, tools: Sequence[Mapping[str, Any]], text: str) -> str:
    """A turn as the tiny model's chat template writes it where actions are calls."""
    action = env.grammar.parse(text)
    call = json.dumps(as_call(tools, action), ensure_ascii=False)
    return f"{THINK}{action.thought}{THINK_END}<tool_call>{call}</tool_call>"


def chain(chat: Chat, shown: Demonstration) -> Node:
    """A demonstration as a tree without branches; of thought factors only the last one has an end token."""
    root = state = Node(Kind.STATE, chat.prompt(*shown.head, shown.tools), oracle=shown.chances[0])
    message = not shown.head[2]
    for i, (text, seen) in enumerate(shown.turns):
        last = i == len(shown.turns) - 1
        end = (chat.end_id,) if message or last else ()
        action = state.add(Node(Kind.ACTION, (*chat.encode(text), *end)))
        seen_ids = () if last or not message else chat.observation(seen, closed=True)
        success, chance = shown.success if last else None, shown.chances[i + 1]
        state = action.add(Node(Kind.STATE, seen_ids, terminated=last, success=success, oracle=chance))
    return root


def drill_tree(chat: Chat, drill: Drill) -> Node:
    """A text and its exercises as a tree without branches. The beginning of a turn belongs to the state before it; a
    turn that is given whole is an action that is labelled False."""
    text, exercises = drill
    root = state = Node(Kind.STATE, chat.observation(text, closed=True))
    for exercise in exercises:
        given = chat.encode(exercise.given)
        if exercise.wanted:
            state.tokens = (*state.tokens, *given)
            action = state.add(Node(Kind.ACTION, (*chat.encode(exercise.wanted), chat.end_id)))
        else:
            action = state.add(Node(Kind.ACTION, (*given, chat.end_id), label=False))
        seen = chat.observation(exercise.seen, closed=True) if exercise is not exercises[-1] else ()
        state = action.add(Node(Kind.STATE, seen))
    return root
