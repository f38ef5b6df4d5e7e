"""The scripted speaker of the rollout tests: the identity environment, a chat and jobs."""

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from scripted_engine import FakeEngine

from agent_envs.core import Task
from agent_envs.identity.env import IdentityEnv
from agents.engine.base import Request
from agents.text.chat import Chat
from agents.tiny.tokenizer import build_tokenizer
from agents.tree.episode import Episode, Job

ENV = IdentityEnv()
WORDS = ENV.config.words
CHAT = Chat(build_tokenizer([f"word: {w} <think>{w}</think><action>SAY({w})</action>" for w in WORDS], WORDS))


def tasks(n: int) -> list[Task]:
    return [ENV.tasks("train")[i] for i in range(n)]


def jobs(n: int, samples: int = 1, seed: int = 0) -> list[Job]:
    return [Job(task, sample, seed) for task in tasks(n) for sample in range(samples)]


def speaker(right: float = 1.0) -> Callable[[Request, tuple[int, ...]], Sequence[int]]:
    """Says the shown word with that probability, otherwise any; decided by the request's seed alone."""

    def script(request: Request, history: tuple[int, ...]) -> Sequence[int]:
        rng = Random(request.seed)
        word = re.findall(r"word: (\w+)", CHAT.decode(request.tokens))[-1]
        said = word if rng.random() < right else rng.choice(WORDS)
        return (*CHAT.encode(f"SAY({said})"), CHAT.end_id, 5, 5)  # nothing is read past the end token

    return script


def engine(right: float = 1.0, **options: Any) -> FakeEngine:
    return FakeEngine(speaker(right), CHAT.stop_ids, **options)


def path(episode: Episode) -> tuple[int, ...]:
    return episode.root.tokens + tuple(t for pair in episode.turns for node in pair for t in node.tokens)
