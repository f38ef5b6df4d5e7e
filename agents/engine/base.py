"""The engine's protocol.

Invariants: token ids in, token ids out, nothing is decoded. A session is one branch of an episode; the engine remembers
its tokens, so a request carries only what is new since the session's last completion. A completion carries the version
of the policy that sampled it, because policies change only while no session is open. What only some engines can do is
in `Capabilities`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import numpy as np

from agents.text.errors import EngineError

if TYPE_CHECKING:
    from torch import Tensor

    from agents.text.thoughts import ThoughtEnds


class StopReason(StrEnum):
    """Why a completion ended."""

    END = "end"
    """An end token was sampled; it is the last of the completion's tokens."""
    CUT = "cut"
    """A thought factor ended with the last of the tokens, as the request asked."""
    LENGTH = "length"
    """``max_tokens`` or the engine's context length was reached."""


class ContextFull(ValueError):  # noqa: N818
    """The session's history and the new tokens leave no room for a sampled token. Nothing was changed."""


@dataclass(frozen=True)
class SamplingSettings:
    """How tokens are drawn. Log-probs and entropies are those of the distribution they are drawn from; where the best
    token is taken, those of softmax(logits / temperature).
    """

    temperature: float = 1.0
    """Divides the logits; must be above 0."""
    greedy: bool = False
    """Take the most probable token instead of drawing one."""
    top_p: float = 1.0
    """Draw from the fewest most probable tokens that together have this probability; 1 draws from all."""
    top_k: int = 0
    """Draw from this many of the most probable tokens; 0 draws from all."""

    def __post_init__(self) -> None:
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must lie above 0 and up to 1, not {self.top_p}")
        if self.top_k < 0:
            raise ValueError(f"top_k must not be negative, but is {self.top_k}")
        if not 0 < self.temperature < float("inf"):
            raise ValueError(
                f"temperature must be above 0 and finite, not {self.temperature}; for the best token set greedy"
            )


@dataclass(frozen=True)
class Request:
    """Continue a session with ``tokens`` and sample what follows."""

    session: int
    """One per branch of an episode; the caller's own number. An unknown number opens a session."""
    tokens: tuple[int, ...]
    """What is new since the session's last completion; the whole prompt for a new session. May be empty later on."""
    max_tokens: int
    """Most tokens to sample, at least 1."""
    seed: int
    """Token k uses number ``skip`` + k of the uniform numbers of Philox(key=seed); 0 <= seed < 2**128."""
    fork_of: int | None = None
    """Open the session as a copy of this open session as it stood after its last completion."""
    fork_at: int | None = None
    """Copy only this many of its first tokens; None copies all."""
    skip: int = 0
    """What was sampled with this seed before: a turn that is sampled in two parts is the turn sampled in one."""
    cut: ThoughtEnds | None = None
    """Stop where a thought factor ends, too. All requests of an engine must bring the same table."""


@dataclass(frozen=True)
class Completion:
    """What was sampled for a request: at least one token."""

    session: int
    tokens: tuple[int, ...]
    logp: tuple[float, ...]
    """Log-probability of each token."""
    entropy: tuple[float, ...]
    """Entropy in nats of the distribution each token was drawn from."""
    stop: StopReason
    version: int
    """The policy version that sampled it."""


@dataclass(frozen=True)
class Capabilities:
    """What an engine can do beyond the protocol. Whoever depends on one asks for it with `need`."""

    reproducible: bool = False
    """A request's tokens depend on its own tokens, seed and policy only, bit for bit: token k uses number k of the
    uniform numbers of Philox(key=seed)."""
    forks: bool = False
    """`Request.fork_of` opens a session as an exact copy of another, and `Request.skip` goes on with a turn."""
    full_entropy: bool = False
    """`Completion.entropy` is over the whole vocabulary, not over a few alternatives."""
    thought_cuts: bool = False
    """`Request.cut` stops where a thought factor ends."""


class Engine(Protocol):
    """Samples for many sessions at once."""

    @property
    def capabilities(self) -> Capabilities: ...

    def describe(self) -> str:
        """One line about how the policy is run."""

    sampling: SamplingSettings
    """May be replaced whenever nothing is pending."""

    @property
    def version(self) -> int:
        """The loaded policy."""

    @property
    def vocabulary(self) -> int:
        """How many tokens there are to choose from."""

    @property
    def slots(self) -> int:
        """How many sessions may be open at once."""

    @property
    def pending(self) -> int:
        """Requests that have not completed."""

    def submit(self, request: Request) -> None:
        """Queues a request.

        Raises ContextFull, and ValueError for any other request that cannot be served (no free slot, the session is
        busy, an empty prompt ...); the engine's state is then as before.
        """

    def step(self) -> list[Completion]:
        """Advances all pending requests and returns those that finished; call until ``pending`` is 0."""

    def close_session(self, session: int) -> None:
        """Frees the slot; a pending request of the session is dropped. Raises KeyError for an unknown session."""

    def load(self, version: int, adapter: Mapping[str, Tensor] | bytes | None) -> None:
        """Takes a new policy: a LoRA state dict (or its safetensors bytes); None is the base model.

        Raises RuntimeError while a session is open, so that no completion mixes two policies.
        """


def need(engine: Engine, capability: str, who: str) -> None:
    """Raises EngineError, for ``who`` depends on it, when the engine does not have a field of `Capabilities`."""
    if not getattr(engine.capabilities, capability):
        raise EngineError(
            f"{who} needs an engine that is capable of {capability}, and this one is not: {engine.describe()}"
        )


def refuse_both_cuts(sampling: SamplingSettings) -> None:
    """Raises EngineError for ``top_p`` with ``top_k``, which vLLM's own sampler cuts otherwise than the trainer."""
    if not sampling.greedy and sampling.top_p < 1 and sampling.top_k:
        raise EngineError(
            "vLLM's own sampler takes top_p of what top_k leaves, the trainer of all tokens: set one of them"
        )


def check_request(
    request: Request,
    *,
    known: bool,
    busy: bool,
    room: bool,
    vocabulary: int | None = None,
    ends: ThoughtEnds | None = None,
) -> None:
    """The checks that all engines share. Raises ValueError.

    ``known``: the session is open; ``busy``: it has a pending request; ``room``: a slot is free; ``ends``: the table of
    earlier requests.
    """
    who = f"session {request.session}"
    if request.cut is not None and ends is not None and request.cut is not ends:
        raise ValueError(f"{who}: thoughts are cut by another tokenizer's table than before")
    if request.max_tokens < 1:
        raise ValueError(f"{who}: max_tokens must be at least 1, not {request.max_tokens}")
    if not 0 <= request.seed < 1 << 128:
        raise ValueError(f"{who}: the seed must be in [0, 2**128), not {request.seed}")
    if request.skip < 0:
        raise ValueError(f"{who}: skip must not be negative, but is {request.skip}")
    if request.fork_at is not None and request.fork_of is None:
        raise ValueError(f"{who}: fork_at says where to cut another session, but fork_of names none")
    if busy:
        raise ValueError(f"{who} already has a pending request")
    if known and request.fork_of is not None:
        raise ValueError(f"{who} is open already and cannot become a fork of session {request.fork_of}")
    if not known and not room:
        raise ValueError(f"{who}: no free slot; close a session first")
    if not known and request.fork_of is None and not request.tokens:
        raise ValueError(f"{who}: a new session needs a prompt")
    if vocabulary is not None and request.tokens and not 0 <= min(request.tokens) <= max(request.tokens) < vocabulary:
        raise ValueError(f"{who}: token ids must be in [0, {vocabulary})")


def forked(request: Request, history: tuple[int, ...]) -> tuple[int, ...]:
    """The part of the source's ``history`` that a fork begins with. Raises ValueError."""
    if not history:
        raise ValueError(f"session {request.fork_of} has completed nothing that could be forked")
    if request.fork_at is not None and not 0 < request.fork_at <= len(history):
        raise ValueError(f"session {request.fork_of} has {len(history)} tokens: no fork begins at {request.fork_at}")
    return history[: request.fork_at]


class KeptTokens(Protocol):
    """A session that is its tokens."""

    history: tuple[int, ...]
    """All tokens up to the last completion."""

    @property
    def turn(self) -> object | None:
        """The pending request."""


def resumed(
    request: Request, sessions: Mapping[int, KeptTokens], engine: Engine, max_length: int, ends: ThoughtEnds | None
) -> tuple[tuple[int, ...], int]:
    """(what the request goes on from, how many tokens may be sampled) where sessions are kept as tokens.

    Raises ValueError and ContextFull.
    """
    session = sessions.get(request.session)
    check_request(
        request,
        known=session is not None,
        busy=session is not None and session.turn is not None,
        room=len(sessions) < engine.slots,
        vocabulary=engine.vocabulary,
        ends=ends,
    )
    history = session.history if session is not None else ()
    if request.fork_of is not None:
        source = sessions.get(request.fork_of)
        history = forked(request, source.history if source is not None else ())
    length = len(history) + len(request.tokens)
    if length >= max_length:
        raise ContextFull(f"session {request.session}: {length} tokens leave no room below {max_length}")
    return history, max_length - length


def uniforms(seed: int, n: int, skip: int = 0) -> np.ndarray:
    """The first ``n`` uniform numbers in [0, 1) of a request after the ``skip`` that were used, float64."""
    return Uniforms().of(seed, n, skip)


class Uniforms:
    """Those of one request after another: to begin a generator anew costs less than to make one."""

    def __init__(self) -> None:
        self._bits = np.random.Philox(key=0)
        self._generator = np.random.Generator(self._bits)
        self._begun = self._bits.state

    def of(self, seed: int, n: int, skip: int = 0) -> np.ndarray:
        """As ``uniforms``."""
        self._begun["state"]["key"] = np.array([seed % 2**64, seed >> 64], np.uint64)
        self._bits.state = self._begun
        return self._generator.random(skip + n)[skip:]
