"""An environment, an engine, an agent, a judge and a rollout backend of another package."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from peft import PeftModel, set_peft_model_state_dict

from agent_envs.actions import Action, Grammar, Verb, render
from agent_envs.core import Outcome, Task, TaskSet, TextEnv, number_after
from agents.engine.base import Capabilities, Completion, Request, SamplingSettings, StopReason, check_request, uniforms
from agents.engine.registry import Opening
from agents.judge import JudgeSettings, Verdicts
from agents.rollout.play import Played
from agents.rollout.react import Player, ReAct
from agents.tree.episode import Episode
from runners.workers.base import PlaySpec
from runners.workers.local import LocalWorkers
from runners.workers.registry import WorkersOpening


@dataclass(frozen=True)
class CountUpConfig:
    """Settings of the counting environment."""

    numbers: int = 60
    """Numbers that are asked about."""
    max_turns: int = 2
    """Turns after which an episode is truncated."""


class CountUpEnv(TextEnv):
    """Say the number after the one that is shown. The reward is 1 for the right one."""

    name = "count_up"
    Config = CountUpConfig
    grammar = Grammar(Verb("SAY", "number"))

    def tasks(self, split: str) -> TaskSet:
        third = self.config.numbers // 3
        start = ("train", "valid", "test").index(split) * third

        def build(index: int) -> Task:
            return Task(f"count-{split}-{index}", split, f"number: {start + index}", data=start + index + 1)

        return TaskSet(third, build, partial(number_after, f"count-{split}-"))

    def instructions(self, language: str) -> str:
        return "Say the next number."

    def _begin(self, task: Task) -> bool:
        return False

    def _act(self, action: Action) -> Outcome:
        right = action.args == str(self.task.data)
        return Outcome("", float(right), terminated=True, success=right)

    def expert(self, *, flaw: float = 0.0, rng: np.random.Generator | None = None) -> str:
        wrong = rng is not None and rng.random() < flaw
        return render("SAY", str(self.task.data + wrong))


@dataclass(frozen=True)
class RecomputeSettings:
    """The engine without a cache."""

    doubles: bool = True
    """Draw from probabilities in float64."""


class Recompute:
    """Reads the whole session again for every token; slow and short."""

    Config = RecomputeSettings

    @staticmethod
    def open(opening: Opening, settings: RecomputeSettings) -> RecomputeEngine:
        return RecomputeEngine(opening, settings)


class RecomputeEngine:
    """See `agents.engine.base.Engine`."""

    capabilities = Capabilities(reproducible=True, full_entropy=True)

    def __init__(self, opening: Opening, settings: RecomputeSettings) -> None:
        self.model = copy.deepcopy(opening.model).eval().requires_grad_(False)
        self.stop_ids, self.slots, self.max_length = set(opening.stop_ids), opening.slots, opening.max_length
        self.version, self.dtype = opening.version, torch.float64 if settings.doubles else torch.float32
        self.sampling = SamplingSettings()
        self.vocabulary: int = self.model.config.vocab_size
        self.history: dict[int, list[int]] = {}
        self.waiting: list[Request] = []

    def describe(self) -> str:
        return "recompute: no cache"

    @property
    def pending(self) -> int:
        return len(self.waiting)

    def submit(self, request: Request) -> None:
        known, busy = request.session in self.history, any(r.session == request.session for r in self.waiting)
        check_request(request, known=known, busy=busy, room=len(self.history) < self.slots, vocabulary=self.vocabulary)
        self.history.setdefault(request.session, []).extend(request.tokens)
        self.waiting.append(request)

    @torch.no_grad()
    def step(self) -> list[Completion]:
        waiting, self.waiting = self.waiting, []
        return [self.complete(request) for request in waiting]

    def complete(self, request: Request) -> Completion:
        history, drawn = self.history[request.session], []
        for u in uniforms(request.seed, request.max_tokens):
            logits = self.model(torch.tensor([history]), use_cache=False).logits[0, -1]
            logp = (logits.to(self.dtype) / self.sampling.temperature).log_softmax(0)
            below = int((logp.exp().cumsum(0) < u).sum())
            token = int(logp.argmax()) if self.sampling.greedy else min(below, self.vocabulary - 1)
            drawn.append((token, float(logp[token]), float(-(logp.exp() * logp).sum())))
            history.append(token)
            if token in self.stop_ids or len(history) == self.max_length:
                break
        tokens, logps, entropies = zip(*drawn, strict=True)
        stop = StopReason.END if tokens[-1] in self.stop_ids else StopReason.LENGTH
        return Completion(request.session, tokens, logps, entropies, stop, self.version)

    def close_session(self, session: int) -> None:
        del self.history[session]
        self.waiting = [r for r in self.waiting if r.session != session]

    def load(self, version: int, adapter: Mapping[str, torch.Tensor] | bytes | None) -> None:
        if self.history:
            raise RuntimeError("a session is open")
        assert isinstance(self.model, PeftModel) and not isinstance(adapter, bytes)
        if adapter is None:
            self.model.base_model.disable_adapter_layers()
        else:
            self.model.base_model.enable_adapter_layers()
            set_peft_model_state_dict(self.model, dict(adapter))
        self.version = version


@dataclass(frozen=True)
class HintedSettings:
    """The agent with a hint."""

    hint: str = "Think first."
    """What is added to the system message."""


class HintedReAct(ReAct):
    def __init__(self, *arguments: Any, hint: str = "") -> None:
        super().__init__(*arguments)
        self.hint = hint

    def reset(self) -> tuple[str, str, dict[str, Any]]:
        system, user, info = super().reset()
        return f"{system}\n{self.hint}", user, info


class Hinted:
    """ReAct with a hint in the system message."""

    Config = HintedSettings

    @staticmethod
    def player(settings: HintedSettings) -> Player:
        return partial(HintedReAct, hint=settings.hint)


class Short:
    """Calls an action GOOD when it is short."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    @staticmethod
    def open(settings: JudgeSettings) -> Short:
        return Short(settings.max_reply_tokens or 12)

    def check(self) -> None: ...

    def label(self, episodes: Sequence[Episode], scores: Sequence[float]) -> Verdicts:
        return Verdicts([[len(action.tokens) <= self.limit for action, _ in e.turns] for e in episodes], {})

    def close(self) -> None: ...


class Counting:
    """One worker in this process, which counts the portions that it plays."""

    @staticmethod
    def open(opening: WorkersOpening) -> CountingWorkers:
        return CountingWorkers(opening.local)


class CountingWorkers(LocalWorkers):
    portions = 0

    def submit(self, spec: PlaySpec, version: int, on_end: Callable[[], None] | None = None) -> Future[Played]:
        self.portions += 1
        return super().submit(spec, version, on_end)

    def close(self) -> None:
        print(f"portions played: {self.portions}")
        super().close()
