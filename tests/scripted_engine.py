"""A scripted engine that keeps the protocol of the real ones, for tests of everything above it.

Invariant: it refuses what a real engine refuses (no free slot, a busy session, a full context, loading while a session
is open), so that code that runs on it runs on a model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from agents.engine.base import (
    Capabilities,
    Completion,
    ContextFull,
    Request,
    SamplingSettings,
    StopReason,
    check_request,
    forked,
)

if TYPE_CHECKING:
    from torch import Tensor

    from agents.text.thoughts import ThoughtEnds

Script = Callable[[Request, tuple[int, ...]], Sequence[int]]
"""Request and the session's tokens before the request's own, to the tokens that are "sampled"."""
Entropies = Callable[[Request, Sequence[int]], Sequence[float]]
"""The same request and those tokens, to the entropy of each."""


class FakeEngine:
    """See :class:`agents.engine.base.Engine`. A step finishes the ``batch`` oldest requests (all of them for 0).

    The script's tokens are cut after the first of ``stop_ids`` and at the length limits; a request that goes on with a
    turn (``skip``) gets the rest of them. ``logp`` and ``entropy`` are written for every token, unless the latter is a
    script too. ``submitted`` and ``loaded`` record what was asked.
    """

    def __init__(
        self,
        script: Script,
        stop_ids: Collection[int] = (),
        *,
        slots: int = 64,
        max_length: int = 1 << 20,
        batch: int = 0,
        logp: float = -0.5,
        entropy: float | Entropies = 0.5,
        sampling: SamplingSettings | None = None,
        version: int = 0,
        vocabulary: int = 1000,
    ) -> None:
        self.script, self.stop_ids = script, frozenset(stop_ids)
        self.slots, self.max_length, self.batch = slots, max_length, batch
        self.logp, self.entropy = logp, entropy
        self.sampling = sampling or SamplingSettings()
        self.version, self.vocabulary = version, vocabulary
        self.submitted: list[Request] = []
        self.loaded: list[tuple[int, Mapping[str, Tensor] | bytes | None]] = []
        self._history: dict[int, tuple[int, ...]] = {}
        self._turn: dict[int, tuple[tuple[int, ...], tuple[float, ...]]] = {}
        """Of each session, all tokens of its newest turn and their entropies."""
        self._queue: deque[Request] = deque()
        self._cut_by: ThoughtEnds | None = None

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(reproducible=True, forks=True, full_entropy=True, thought_cuts=True)

    def describe(self) -> str:
        return "a scripted engine"

    @property
    def pending(self) -> int:
        return len(self._queue)

    def submit(self, request: Request) -> None:
        known = request.session in self._history
        busy = any(r.session == request.session for r in self._queue)
        check_request(request, known=known, busy=busy, room=len(self._history) < self.slots, ends=self._cut_by)
        self._cut_by = request.cut or self._cut_by
        history = self._history.get(request.session if request.fork_of is None else request.fork_of, ())
        if request.fork_of is not None:
            history = forked(request, history)
        total = len(history) + len(request.tokens)
        if total + 1 > self.max_length:
            raise ContextFull(f"session {request.session}: {total} tokens leave no room below {self.max_length}")
        self._history[request.session] = history
        self._queue.append(request)
        self.submitted.append(request)

    def step(self) -> list[Completion]:
        count = min(self.batch or len(self._queue), len(self._queue))
        return [self._complete(self._queue.popleft()) for _ in range(count)]

    def _complete(self, request: Request) -> Completion:
        history = self._history[request.session]
        room = self.max_length - len(history) - len(request.tokens)
        if not request.skip:
            said = tuple(self.script(request, history))
            unsure = self.entropy(request, said) if callable(self.entropy) else (self.entropy,) * len(said)
            self._turn[request.session] = said, tuple(unsure)
        said, sure = self._turn[request.session]
        tokens = said[request.skip :][: min(request.max_tokens, room)]
        stop = StopReason.LENGTH
        if request.cut is not None and (whole := request.cut.length(tokens, said[: request.skip])) is not None:
            tokens, stop = tokens[:whole], StopReason.CUT
        for i, token in enumerate(tokens):
            if token in self.stop_ids:
                tokens, stop = tokens[: i + 1], StopReason.END
                break
        if not tokens:
            raise ValueError(f"session {request.session}: the script gave no token")
        self._history[request.session] = history + request.tokens + tokens
        n = len(tokens)
        return Completion(request.session, tokens, (self.logp,) * n, sure[request.skip :][:n], stop, self.version)

    def close_session(self, session: int) -> None:
        del self._history[session]
        self._queue = deque(r for r in self._queue if r.session != session)

    def load(self, version: int, adapter: Mapping[str, Tensor] | bytes | None) -> None:
        if self._history:
            raise RuntimeError(f"{len(self._history)} sessions are open: they would mix two policies")
        self.loaded.append((version, adapter))
        self.version = version
