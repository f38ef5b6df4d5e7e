"""The core of environments with several tools: which tools an episode used, and ARPO's hierarchical reward for it.

An environment is a set of tools (`ToolEnv.tools` and the verbs of its grammar), tasks, and a reward.

Invariants: a turn counts as a call when it was carried out, so a refused one never does; what was called lies in the
state, so a fork has it too; with a `TagGrammar` the transcript is judged by `hierarchical_reward`, as it was written.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from agent_envs.core import Outcome, TextEnv
from agent_envs.hierarchical import HierarchicalScore, HierarchicalSettings, hierarchical_reward, paid
from agent_envs.tag_grammar import TagGrammar, as_result
from agent_envs.tool_format import Piece


@dataclass(frozen=True)
class ToolState:
    """What every state of an environment with tools holds."""

    called: tuple[str, ...] = ()
    """Verbs of the turns that were carried out, in their order; kept where there are several tools or the hierarchical
    reward."""
    transcript: tuple[Piece, ...] = ()
    """Turns that were carried out and their results; kept with a `TagGrammar`."""


class ToolEnv(TextEnv):
    """Base of environments with tools. A concrete one sets `tools` and writes `_pays_form` and `_submitted`."""

    tools: ClassVar[Mapping[str, frozenset[str]]]
    """Name of a tool → verbs of which one has to be used for it to count as used; with a `TagGrammar` the names are its
    tags."""

    @property
    @abstractmethod
    def _pays_form(self) -> bool:
        """Whether the hierarchical reward is paid."""

    @abstractmethod
    def _submitted(self) -> tuple[str | None, Sequence[str]]:
        """(the submitted answer, None without one; the accepted ones)"""

    @property
    def _tagged(self) -> bool:
        return isinstance(self.grammar, TagGrammar)

    def _shown(self, outcome: Outcome) -> Outcome:
        """The outcome with its text as the agent gets it."""
        if not self._tagged or outcome.terminated:
            return outcome
        return replace(outcome, text=as_result(outcome.text))

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        text, earned, terminated, truncated, info = super().step(action)
        several = len(self.tools) > 1
        if not info["invalid"] and (several or self._pays_form):
            self._state = replace(self._state, called=(*self._state.called, info["action"]))
        if not info["invalid"] and self._tagged:
            said = Piece(action), *([] if terminated else [Piece(text, by_model=False)])
            self._state = replace(self._state, transcript=(*self._state.transcript, *said))
        if several:
            info["metrics"] |= self._tool_metrics()
        if self._pays_form:
            earned = 0.0
            if terminated or truncated:
                score = self._hierarchical()
                earned, info["reason"] = score.score, score.reason
        return text, earned, terminated, truncated, info

    def _tool_metrics(self) -> dict[str, float]:
        """How many calls there were, and whether each tool was among them."""
        called = self._state.called
        calls = sum(any(verb in verbs for verbs in self.tools.values()) for verb in called)
        return {"tool_calls": float(calls), "all_tools": float(self._used_all())}

    def _used_all(self) -> bool:
        return all(not verbs.isdisjoint(self._state.called) for verbs in self.tools.values())

    def _hierarchical(self) -> HierarchicalScore:
        answer, accepted = self._submitted()
        settings = HierarchicalSettings(tools=tuple(self.tools))
        if self._tagged and not self._invalid_turns:
            return hierarchical_reward(self._state.transcript, accepted, settings)
        wrong = None if answer else "there is no answer"
        if invalid := self._invalid_turns:
            wrong = f"bad format: {invalid} turn{'s' * (invalid > 1)} cannot be read"
        return paid(wrong, answer or "", accepted, used_all=self._used_all(), settings=settings)
