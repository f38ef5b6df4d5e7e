r"""The mathematics environment: a thought factor is a turn, and the answer stands in the last one's ``\boxed{}``.

Invariants: a state is the immutable list of thoughts; what a thought says is never evaluated, only searched for claims
(`agent_envs.math.progress`) and, at the end, for the box. The answer is right when it has the value of the task's gold
answer; an answer that the verifier cannot check in time is not right, and is counted as unverified.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from agent_envs.actions import Action, Grammar, Thoughts
from agent_envs.boxed import boxed
from agent_envs.core import Outcome, Task, TaskSet, TextEnv
from agent_envs.math.config import GENERATED, MathConfig
from agent_envs.math.expert import Situation, next_thought
from agent_envs.math.oracle import chance
from agent_envs.math.problem import LETTERS, Problem
from agent_envs.math.progress import progress
from agent_envs.math.reward import Verdict, check_installed, verdict
from agent_envs.math.tasks import tasks_of
from agent_envs.math.text_expert import tell
from agent_envs.math.thought_kinds import counted, kind_of

_ROLE = {
    "en": "You solve a mathematical problem. Each thought may propose a guess, reject one, propose a way, clarify the "
    "goal, find and mend your own mistake, or split the task.",
    "zh": "你是一个数学天才，帮用户解决数学问题。一个思考因子可以：提出猜测、否定猜测、提出候选方案、澄清目标、"
    "发现并修正自己的错误、拆解子任务。",
}


@dataclass(frozen=True)
class MathState:
    """All that an episode changes."""

    factors: tuple[str, ...] = ()
    """The thoughts so far."""
    unverified: bool = False
    """Whether there was an answer that nobody could check."""


class MathEnv(TextEnv):
    """Solve a mathematical problem in thoughts. The reward is 1 for the right answer."""

    name: ClassVar[str] = "math"
    Config: ClassVar[type[Any]] = MathConfig
    config: MathConfig
    grammar: ClassVar[Grammar] = Thoughts()
    openings: ClassVar[Mapping[str, str]] = {"en": "Let's think step by step:", "zh": "让我们一步步思考："}

    def tasks(self, split: str) -> TaskSet:
        check_installed(self.config.verifier)  # here, or a long run would find out at its first odd answer
        return tasks_of(self.config, split)

    def prepare(self) -> None:
        self.tasks("train")

    def instructions(self, language: str) -> str:
        return _ROLE[language]

    def system_prompt(self) -> str:
        return f"{self.instructions(self._language)}\n{self.grammar.format(self._language)}"

    def _begin(self, task: Task) -> MathState:
        return MathState()

    def _copy_state(self, state: MathState) -> MathState:
        return state

    @property
    def _problem(self) -> Problem:
        problem = self.task.data
        assert isinstance(problem, Problem)
        return problem

    def _act(self, action: Action) -> Outcome:
        last = self.turn >= self.max_turns
        self._state = replace(self._state, factors=(*self._state.factors, action.args))
        if action.name == "THINK" and not last:
            return Outcome()
        try:
            result = self._verdict(boxed(action.args))
        except ValueError:  # no box: the last allowed thought may just not be the end
            return Outcome(terminated=action.name == "ANSWER")
        self._state = replace(self._state, unverified=bool(result.unverified))
        return Outcome("", float(result.right), terminated=True, success=result.right)

    def _verdict(self, answer: str) -> Verdict:
        config, problem = self.config, self._problem
        return verdict(problem.gold, answer, config.verifier, config.verify_seconds, problem.scorer)

    def _metrics(self, *, over: bool) -> Mapping[str, float]:
        if not over:
            return {}
        return counted(map(kind_of, self._state.factors)) | {"unverified": float(self._state.unverified)}

    def turn_kind(self) -> Callable[[str], str | None]:
        return kind_of

    def lexicon(self) -> Sequence[str]:
        if self.config.source != GENERATED:
            return ()
        return [*"0123456789", *LETTERS[: self.config.max_steps + 1]]

    def oracle(self) -> float | None:
        """The chance of the agent that `agent_envs.math.oracle` describes; None for tasks that are not generated."""
        chain = self._problem.chain
        if chain is None:
            return None
        factors, left = self._state.factors, self.max_turns - self.turn
        so_far = progress(chain, factors)
        spent = int(not factors and left > 1)  # what it begins with
        return chance(len(chain.steps), so_far.done, so_far.wrong, left - spent, self.config.skill)

    def expert(self, *, flaw: float = 0.0, rng: np.random.Generator | None = None) -> str:
        problem, factors, left = self._problem, self._state.factors, self.max_turns - self.turn
        if problem.chain is None:
            return tell(problem, factors, left, self.task.language, flaw, rng)
        return next_thought(Situation(problem.chain, factors, left, self.task.language), flaw, rng)
