"""The engine on vLLM: sessions over turns, with vLLM's scheduler and its cache of prefixes below them.

Invariants: a session is its tokens; every request brings all of them, and what vLLM computed for their whole blocks
before is not computed again. Where no session is open the cache begins anew, so that what is sampled depends, to the
last bit, on what is submitted from then on only.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import count
from time import monotonic

import numpy as np
from torch import Tensor
from vllm import LLMEngine, RequestOutput
from vllm.inputs import TokensPrompt
from vllm.logprobs import FlatLogprobs

from agents.engine.base import (
    Capabilities,
    Completion,
    Request,
    SamplingSettings,
    StopReason,
    resumed,
)
from agents.engine.vllm.adapters import Adapters
from agents.engine.vllm.calls import Calls
from agents.engine.vllm.samplers import TokenSampler
from agents.text.thoughts import ThoughtEnds


@dataclass
class _Turn:
    """A request in vLLM."""

    request: Request
    number: int
    """Its own; vLLM knows it by this name."""
    thought: int = 0
    """State of the automaton that looks for the end of a thought."""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[FlatLogprobs] = field(default_factory=list)


@dataclass
class _Session:
    history: tuple[int, ...] = ()
    """All tokens up to the last completion."""
    turn: _Turn | None = None
    """What is pending."""


class VLLMEngine:
    """See :class:`agents.engine.base.Engine`. `opening` makes it, and its parts.

    Raises EngineError, once and for all, where vLLM fails, or samples nothing for as long as ``calls`` waits.
    """

    def __init__(
        self,
        vllm: LLMEngine,
        calls: Calls,
        adapters: Adapters,
        sampler: TokenSampler,
        stop_ids: Collection[int],
        *,
        max_length: int,
        slots: int,
        vocabulary: int,
        version: int,
        how: str,
    ) -> None:
        self.vllm, self.calls, self.adapters, self.sampler = vllm, calls, adapters, sampler
        self.slots, self.max_length, self.vocabulary, self.version = slots, max_length, vocabulary, version
        self.sampling = SamplingSettings()
        self._how = how
        self._ends = frozenset(stop_ids)
        self._sessions: dict[int, _Session] = {}
        self._turns: dict[str, tuple[int, _Turn]] = {}
        """Pending requests by vLLM's name, with their sessions."""
        self._numbers = count()
        self._cut_by: ThoughtEnds | None = None
        self._progress = monotonic()
        """When a token was sampled, or the first request came, last."""

    @property
    def capabilities(self) -> Capabilities:
        return self.sampler.capabilities

    def describe(self) -> str:
        return f"{self._how}, {self.sampler.how}; {self.slots} slots of at most {self.max_length} tokens"

    @property
    def pending(self) -> int:
        return len(self._turns)

    def submit(self, request: Request) -> None:
        history, room = resumed(request, self._sessions, self, self.max_length, self._cut_by)
        prompt = history + request.tokens
        if not self._sessions:
            self.calls(self.vllm.reset_prefix_cache)
        if not self._turns:
            self._progress = monotonic()
        turn = _Turn(request, next(self._numbers))
        if request.cut is not None:
            self._cut_by = request.cut
            turn.thought = request.cut.state(prompt[-request.skip :] if request.skip else ())
        limit = min(request.max_tokens, room)
        params = self.sampler.params(turn.number, request, limit, self.sampling)
        asked = TokensPrompt(prompt_token_ids=list(prompt))
        self.calls(self.vllm.add_request, str(turn.number), asked, params, None, self.adapters.request)
        self._sessions[request.session] = _Session(history, turn)
        self._turns[str(turn.number)] = request.session, turn

    def step(self) -> list[Completion]:
        if not self._turns:
            return []
        outputs = self.calls(self.vllm.step)
        if outputs:
            self._progress = monotonic()
        elif monotonic() - self._progress > self.calls.patience:
            raise self.calls.fail(f"vLLM has sampled nothing for {self.calls.patience:g} s")
        done = [self._take(output) for output in outputs]
        return [completion for completion in done if completion is not None]

    def close_session(self, session: int) -> None:
        closed = self._sessions.pop(session)
        if closed.turn is not None:
            self._drop(closed.turn)

    def load(self, version: int, adapter: Mapping[str, Tensor] | bytes | None) -> None:
        if self._sessions:
            raise RuntimeError(f"{len(self._sessions)} sessions are open: they would mix two policies")
        self.adapters.load(self.vllm, self.calls, adapter)
        self.version = version

    def close(self) -> None:
        """Ends vLLM; this process may then open another engine, one at a time."""
        from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

        self.calls(self.vllm.engine_core.shutdown)
        self.calls(cleanup_dist_env_and_memory)

    def _take(self, output: RequestOutput) -> Completion | None:
        """The next tokens of a request; its completion where they end it."""
        name, turn = self._turns[output.request_id]
        part = output.outputs[0]
        turn.tokens += part.token_ids
        if part.logprobs is not None:
            turn.logprobs.append(part.logprobs)
        if turn.tokens and turn.tokens[-1] in self._ends:
            return self._finish(name, turn, StopReason.END)
        if self._thought_ends(turn, part.token_ids):
            return self._finish(name, turn, StopReason.CUT, running=not output.finished)
        return self._finish(name, turn, StopReason.LENGTH) if output.finished else None

    def _thought_ends(self, turn: _Turn, tokens: Collection[int]) -> bool:
        """Whether a thought, where one is to be cut, ends with the last of the new ``tokens``: they come one by one."""
        ends = False
        if turn.request.cut is not None:
            for token in tokens:
                state, ended = turn.request.cut.advance(np.array([turn.thought]), np.array([token]))
                turn.thought, ends = int(state[0]), bool(ended[0])
        return ends

    def _finish(self, name: int, turn: _Turn, stop: StopReason, running: bool = False) -> Completion:
        tokens = tuple(turn.tokens)
        logp, entropy = self.sampler.figures(turn.number, tokens, turn.logprobs)
        if running:
            self._drop(turn)
        else:
            self._forget(turn)
        session = self._sessions[name]
        session.history += turn.request.tokens + tokens
        session.turn = None
        return Completion(name, tokens, logp, entropy, stop, self.version)

    def _drop(self, turn: _Turn) -> None:
        """Takes a request out of vLLM before its end."""
        self.calls(self.vllm.abort_request, [str(turn.number)])
        self._forget(turn)

    def _forget(self, turn: _Turn) -> None:
        del self._turns[str(turn.number)]
        self.sampler.drop(turn.number)
