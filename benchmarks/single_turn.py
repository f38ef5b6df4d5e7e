"""One GRPO step of this project on answers of one turn: the counterpart of another trainer's step.

Invariant: it is made of the parts that ``runners/train.py`` runs (rollout, engine, trees, packing, actor-critic,
algorithm), on prompts and answers of fixed lengths: no token ends an answer. A token is written as its number, so that
texts and tokens are as many.
"""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self, cast

from transformers import PreTrainedModel

from agent_envs.core import Task
from agents.engine.hf import HFEngine
from agents.model.actor_critic import ActorCritic
from agents.rollout.play import rollout
from agents.rollout.settings import ReActSettings
from agents.text.chat import Chat
from agents.tree.episode import Job
from agents.tree.merge import grow
from algorithms.grpo import GRPO
from runners.settings.train_settings import Train
from runners.training.learner import Learner

GROUP = 8
"""Answers to each prompt."""
LEARNING_RATE = 1e-5


@dataclass(frozen=True)
class Shape:
    """How much is read and sampled in a step."""

    groups: int
    prompt: int = 60
    answer: int = 128

    @property
    def answers(self) -> int:
        return self.groups * GROUP

    @property
    def sampled(self) -> int:
        """Tokens that a step samples."""
        return self.answers * self.answer

    @property
    def read(self) -> int:
        """Tokens of the prompts of all answers."""
        return self.answers * self.prompt


@dataclass(frozen=True)
class Split:
    """Process time of a step in seconds, and how much was done."""

    generation: float
    learning: float
    """Forward and backward; with the trainer's own preparations also those, and the optimiser."""
    rest: float
    read: int
    """Tokens of the prompts of all answers, whether or not they were encoded anew."""
    sampled: int
    trained: int
    """Tokens that went through the model in one forward of the loss."""

    @property
    def step(self) -> float:
        return self.generation + self.learning + self.rest


def prompts(count: int, shape: Shape, vocabulary: int) -> list[str]:
    """Texts of ``shape.prompt`` words that have nothing in common."""
    rng = random.Random(0)
    return [" ".join(str(rng.randrange(1, vocabulary)) for _ in range(shape.prompt)) for _ in range(count)]


def reward(text: str) -> float:
    """Share of even words: a number that differs between the answers of a group."""
    words = text.split()
    return sum(int(word) % 2 == 0 for word in words) / max(1, len(words))


class Answer:
    """An environment of one turn that pays ``reward`` for it."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        assert options is not None
        return options["task"].prompt, {}

    def system_prompt(self) -> str:
        return ""

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "", reward(action), True, False, {"success": False}

    def fork(self) -> Self:
        return self

    def close(self) -> None:
        pass


class Words:
    """A chat without a template: a token is its number."""

    format = None

    def prompt(self, system: str, user: str, opening: str = "") -> tuple[int, ...]:
        return tuple(map(int, user.split()))

    def action_text(self, tokens: Sequence[int]) -> str:
        return " ".join(map(str, tokens))

    def turn_text(self, tokens: Sequence[int], *, first: bool, tools: object = ()) -> str:
        return self.action_text(tokens)


class Ours:
    """The step, again and again, as ``runners/train.py`` makes it with one minibatch."""

    def __init__(self, model: PreTrainedModel, shape: Shape) -> None:
        self.shape = shape
        self.model = ActorCritic(model, critic=None)
        length = shape.prompt + shape.answer
        self.engine = HFEngine(self.model.model, [], max_length=length + 1, slots=shape.answers)
        self.settings = ReActSettings(max_action_tokens=shape.answer, max_tokens=length)
        self.learner = Learner(self.model, GRPO(group=GROUP), (), Train(minibatches=1, lr=LEARNING_RATE))
        self.texts = prompts(4096, shape, self.engine.vocabulary)
        self.steps = 0

    def step(self) -> Split:
        marks = [time.process_time()]
        tasks = [Task(str(n), "train", self.texts[n % len(self.texts)]) for n in self._numbers()]
        jobs = [Job(task, sample) for task in tasks for sample in range(GROUP)]
        self.engine.load(self.steps, self.model.policy_state())
        episodes = rollout(Answer, self.engine, cast(Chat, Words()), jobs, self.settings).episodes
        marks.append(time.process_time())
        before = self.model.counters.tokens
        trees = grow(episodes, least=2)
        learned = self.learner.learn(self.steps + 1, trees)
        marks.append(time.process_time())
        # The reference's forward, now and then, shows how far the policy is from its start.
        passes = 2 if "kl" in learned.row else 1
        trained = (self.model.counters.tokens - before) // passes
        self.steps += 1
        generation, learning = (b - a for a, b in pairwise(marks))
        read, sampled = (sum(x) for x in zip(*((len(e.root.tokens), e.sampled_tokens) for e in episodes), strict=True))
        return Split(generation, learning, 0.0, read, sampled, trained)

    def _numbers(self) -> range:
        return range(self.steps * self.shape.groups, (self.steps + 1) * self.shape.groups)
