"""The engine on a vLLM server: sessions over turns, each pending request in a thread of its own.

Invariants: a session is its tokens; every request brings all of them, and the server's cache of prefixes makes that
cheap. A turn may take several requests; its tokens are a sample as of one, because each goes on from what was sampled.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import count
from queue import Empty, SimpleQueue
from threading import Thread

from torch import Tensor

from agents.endpoint.line import Line
from agents.engine.base import (
    Capabilities,
    Completion,
    Request,
    SamplingSettings,
    StopReason,
    refuse_both_cuts,
    resumed,
)
from agents.engine.vllm_server.adapters import Adapters
from agents.engine.vllm_server.parity import PROBE
from agents.engine.vllm_server.server import Piece, Server
from agents.text.errors import EngineError
from agents.text.thoughts import ThoughtEnds

WAIT = 0.02
"""Most seconds that a step waits for a completion: meanwhile other sessions may have something to submit."""


@dataclass
class _Turn:
    """A pending request."""

    request: Request
    number: int
    prompt: tuple[int, ...]
    limit: int
    line: Line
    sampling: SamplingSettings
    model: str
    dropped: bool = False
    tokens: list[int] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)
    entropy: list[float] = field(default_factory=list)


@dataclass
class _Session:
    history: tuple[int, ...] = ()
    """All tokens up to the last completion."""
    turn: _Turn | None = None


class ServerEngine:
    """See :class:`agents.engine.base.Engine`. Raises EngineError, once and for all, where the server fails."""

    def __init__(
        self,
        server: Server,
        adapters: Adapters,
        stop_ids: Collection[int],
        *,
        max_length: int,
        slots: int,
        version: int,
        top: int,
    ) -> None:
        self.server, self.adapters, self.top = server, adapters, top
        self.slots, self.max_length, self.version = slots, max_length, version
        self.sampling = SamplingSettings()
        full = top >= server.vocabulary
        self.capabilities = Capabilities(forks=True, full_entropy=full, thought_cuts=True)
        self._ends = sorted(stop_ids)
        self._sessions: dict[int, _Session] = {}
        self._turns: dict[int, _Turn] = {}
        self._numbers = count()
        self._cut_by: ThoughtEnds | None = None
        self._done: SimpleQueue[tuple[_Turn, StopReason | EngineError]] = SimpleQueue()
        self._failed: str | None = None

    def describe(self) -> str:
        return (
            f"vLLM server at {self.server.url}, model {self.adapters.base}, {self.adapters.parity.dtype}, vLLM's own "
            f"sampler, entropies of the {self.top} most probable tokens; {self.slots} slots of at most "
            f"{self.max_length} tokens"
        )

    @property
    def vocabulary(self) -> int:
        return self.server.vocabulary

    @property
    def pending(self) -> int:
        return len(self._turns)

    def submit(self, request: Request) -> None:
        history, room = resumed(request, self._sessions, self, self.max_length, self._cut_by)
        prompt = history + request.tokens
        if self._failed is not None:
            raise EngineError(self._failed)
        refuse_both_cuts(self.sampling)
        self._cut_by = request.cut or self._cut_by
        limit = min(request.max_tokens, room)
        turn = _Turn(
            request, next(self._numbers), prompt, limit, self.server.line(), self.sampling, self.adapters.model
        )
        self._sessions[request.session] = _Session(history, turn)
        self._turns[turn.number] = turn
        Thread(target=self._play, args=(turn,), name=f"vllm-server-{turn.number}", daemon=True).start()

    def step(self) -> list[Completion]:
        if self._failed is not None:
            raise EngineError(self._failed)
        done: list[Completion] = []
        while self._turns:
            try:
                turn, stop = self._done.get(timeout=0 if done else WAIT)
            except Empty:
                break
            if turn.dropped:
                continue
            if isinstance(stop, EngineError):
                self._failed = str(stop)
                raise stop
            done.append(self._finish(turn, stop))
        return done

    def close_session(self, session: int) -> None:
        turn = self._sessions.pop(session).turn
        if turn is not None:
            turn.dropped = True
            del self._turns[turn.number]
            turn.line.drop()  # the server then ends the request

    def load(self, version: int, adapter: Mapping[str, Tensor] | bytes | None) -> None:
        if self._sessions:
            raise RuntimeError(f"{len(self._sessions)} sessions are open: they would mix two policies")
        self.adapters.load(adapter, self._probe)
        self.version = version

    def close(self) -> None:
        """Takes the policy out of the server."""
        self.adapters.drop()
        self.server.close()

    def _finish(self, turn: _Turn, stop: StopReason) -> Completion:
        del self._turns[turn.number]
        session = self._sessions[turn.request.session]
        session.history, session.turn = turn.prompt + tuple(turn.tokens), None
        figures = tuple(turn.tokens), tuple(turn.logp), tuple(turn.entropy)
        return Completion(turn.request.session, *figures, stop, self.version)

    def _probe(self, model: str, prompt: tuple[int, ...]) -> Piece:
        line = self.server.line()
        piece = self.server.complete(line, model, prompt, 1, 0, PROBE, (), (), self.top)
        self.server.give_back(line)
        return piece

    # -- in the turn's own thread --------------------------------------------------------------------------------

    def _play(self, turn: _Turn) -> None:
        try:
            while not turn.dropped:
                if (stop := self._go_on(turn)) is not None:
                    self._done.put((turn, stop))
                    return
        except EngineError as error:
            self._done.put((turn, error))
        except Exception as error:  # it is raised where it can be seen
            self._done.put((turn, EngineError(f"{type(error).__name__}: {error}")))
        finally:
            self.server.give_back(turn.line)

    def _go_on(self, turn: _Turn) -> StopReason | None:
        """Samples the turn's next tokens; why it is over, or None."""
        request, sampling = turn.request, turn.sampling
        # The server's greedy log-probs ignore the temperature: token by token, the best of those at the temperature.
        best = sampling.greedy and sampling.temperature != 1
        begun = request.skip + len(turn.tokens)
        piece = self.server.complete(
            turn.line,
            turn.model,
            (*turn.prompt, *turn.tokens),
            1 if best else turn.limit - len(turn.tokens),
            # vLLM takes 63 bits; a turn that goes on must not use the first tokens' numbers again.
            (request.seed + begun * 0x9E3779B97F4A7C15) % (1 << 63),
            SamplingSettings(sampling.temperature) if best else sampling,
            self._ends,
            ("\n\n",) if request.cut is not None else (),
            self.top,
        )
        tokens = (max(piece.top[0], key=piece.top[0].__getitem__),) if best else piece.tokens
        cut = self._cut(turn, tokens)
        for token, among in zip(tokens[:cut], piece.top, strict=False):
            turn.tokens.append(token)
            turn.logp.append(min(among[token], 0.0))
            turn.entropy.append(-math.fsum(math.exp(x) * x for x in among.values()))
        if turn.tokens[-1] in self._ends:
            return StopReason.END
        if cut is not None:
            return StopReason.CUT
        if len(turn.tokens) >= turn.limit:
            return StopReason.LENGTH
        if best or piece.stopped_by == "\n\n":  # a blank line with nothing before it is no end
            return None
        raise self.server.error("ends where no end token is: start it with --generation-config vllm")

    def _cut(self, turn: _Turn, tokens: tuple[int, ...]) -> int | None:
        """How many of the new ``tokens`` belong to a thought that ends among them."""
        request = turn.request
        if request.cut is None:
            return None
        begun = turn.prompt[-request.skip :] if request.skip else ()
        return request.cut.length(tokens, (*begun, *turn.tokens))
