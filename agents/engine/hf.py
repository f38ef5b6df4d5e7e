"""The engine on Hugging Face models: many sessions at once, one forward a step.

Invariants: what a session has read or written is encoded once (its keys and values stay in its row between turns);
a step encodes one new token of every session that decodes and, in the same forward, all new tokens of the sessions
that were just submitted; no critic prompt ever gets here. Row = slot; numpy arrays hold one number per row.
"""

import heapq
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from peft import LoraConfig, PeftModel
from torch import Tensor
from transformers import PreTrainedModel

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
from agents.engine.body import Body, body_of
from agents.engine.cache import CachePlan, RowRun, SlotCache, group_runs
from agents.engine.compiled_body import CompiledBody
from agents.engine.decoding import bands
from agents.engine.prefixes import Prefixes
from agents.engine.probe import check_supported, probe
from agents.engine.rows import SlotRows
from agents.engine.sampling import draw
from agents.engine.weights import PolicyWeights, small
from agents.text.errors import ModelError
from agents.text.thoughts import Cuts


@dataclass
class _Session:
    row: int
    history: tuple[int, ...] = ()
    """All tokens up to the last completion."""
    cached: int = 0
    """How many of them (of a first prompt: of its tokens) are in the row."""
    request: Request | None = None
    """What is pending."""


class HFEngine:
    """See :class:`agents.engine.base.Engine`.

    ``model`` is a causal language model, or the PeftModel around it, whose LoRA configuration and present adapter are
    taken over. It is not changed; its weights are shared, so they must stay as they are (on another ``device`` they are
    copied). ``lora`` is the configuration of the adapters that ``load`` will get, for a model that has none yet.
    ``merge`` None chooses; ``describe`` says what was chosen. ``stop_ids`` end a completion. A session never grows
    beyond ``max_length`` tokens. ``share_prefixes``: keys and values that another session has for the beginning of a
    prompt are copied. A step reads new prompts until it has ``prefill_tokens`` of their tokens; the rest waits.
    Raises ModelError for a model that cannot be run exactly.
    """

    def __init__(
        self,
        model: PreTrainedModel | PeftModel,
        stop_ids: Collection[int],
        *,
        max_length: int,
        slots: int = 64,
        sampling: SamplingSettings | None = None,
        lora: LoraConfig | None = None,
        merge: bool | None = None,
        share_prefixes: bool = True,
        prefill_tokens: int = 16384,
        device: torch.device | str | None = None,
        version: int = 0,
    ) -> None:
        if slots < 1 or max_length < 2 or prefill_tokens < 1:
            raise ValueError("slots and prefill_tokens must be at least 1, max_length at least 2")
        check_supported(model.get_base_model() if isinstance(model, PeftModel) else model, max_length)
        self.device = torch.empty(0, device=device or model.device).device  # "cuda" becomes "cuda:0"
        self.weights = PolicyWeights(model, lora, merge, self.device)
        config = self.model.config.get_text_config(decoder=True)
        self.sampling = sampling or SamplingSettings()
        self.version, self.slots, self.max_length = version, slots, max_length
        self.prefill_tokens = prefill_tokens
        self.vocabulary: int = config.vocab_size
        self._layers: int = config.num_hidden_layers
        self._ends = np.zeros(self.vocabulary, dtype=bool)
        self._ends[list(stop_ids)] = True
        self.padding: float | None = None if self.device.type == "cpu" else 1.0
        """How much padding is taken for fewer kernel calls when runs are read, as a share of the work; None: no call
        is shared, because on a CPU a call is cheap and copying rows is not."""
        self.encoded_tokens = 0
        """Tokens that went through the model."""
        self.sampled_tokens = 0
        self.reused_tokens = 0
        """Prompt tokens whose keys and values were copied from another session instead of being encoded."""
        self.forwards = 0
        self._sessions: dict[int, _Session] = {}
        self._waiting: deque[_Session] = deque()
        self._prefixes = Prefixes() if share_prefixes else None
        self._free = list(range(slots))
        self._cache = SlotCache(slots, max_length, self.device)
        self._owner: list[int] = [-1] * slots
        self._rows = SlotRows(slots)
        self._cuts = Cuts(slots)
        self._body_of: PreTrainedModel | None = None
        self._body: Body | CompiledBody | None = None
        probe(self.model, self.forward, max_length)
        self.forwards = self.encoded_tokens = 0

    @property
    def model(self) -> PreTrainedModel:
        """The engine's own modules, which run only through it."""
        return self.weights.model

    # -- the protocol --------------------------------------------------------------------------------------------

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(reproducible=True, forks=True, full_entropy=True, thought_cuts=True)

    @property
    def pending(self) -> int:
        return len(self._waiting) + int(self._rows.active_R.sum())

    def submit(self, request: Request) -> None:
        session = self._sessions.get(request.session)
        busy = session is not None and session.request is not None
        check_request(
            request,
            known=session is not None,
            busy=busy,
            room=bool(self._free),
            vocabulary=self.vocabulary,
            ends=self._cuts.ends,
        )
        source = session
        history = session.history if session is not None else ()
        if request.fork_of is not None:
            source = self._sessions.get(request.fork_of)
            history = forked(request, source.history if source is not None else ())
        total = len(history) + len(request.tokens)
        if total + 1 > self.max_length:
            raise ContextFull(f"session {request.session}: {total} tokens leave no room below {self.max_length}")
        if session is None:
            session = _Session(heapq.heappop(self._free))
            if self._prefixes is not None:
                self._prefixes.drop(session.row)
            if source is not None:
                # A fork that brings no token of its own reads its last one again, for its logits.
                session.history, session.cached = history, min(source.cached, len(history), total - 1)
                self._cache.copy(source.row, session.row, session.cached)
            self._sessions[request.session] = session
            self._owner[session.row] = request.session
        session.request = request
        self._cuts.ends = request.cut or self._cuts.ends
        self._waiting.append(session)

    def close_session(self, session: int) -> None:
        closed = self._sessions.pop(session)
        if closed in self._waiting:
            self._waiting.remove(closed)
        self._rows.active_R[closed.row] = False
        self._owner[closed.row] = -1
        heapq.heappush(self._free, closed.row)

    def load(self, version: int, adapter: Mapping[str, Tensor] | bytes | None) -> None:
        if self._sessions:
            raise RuntimeError(f"{len(self._sessions)} sessions are open: they would mix two policies")
        self.weights.load(adapter)
        self.version = version
        if self._prefixes is not None:
            self._prefixes = Prefixes()

    def describe(self) -> str:
        """One line about how the policy is run."""
        return (
            f"{type(self.model).__name__}, {self.weights.parameters / 1e6:.1f}M parameters, {self.weights.how}"
            f"{self._computed()}; "
            f"{self.slots} slots of at most {self.max_length} tokens on {self.device}"
        )

    @torch.inference_mode()
    def step(self) -> list[Completion]:
        runs, new = self._admit()
        state = self._rows
        rows = np.flatnonzero(state.active_R)
        if not runs and not rows.size:
            return []
        run_rows = np.array([r.row for r in runs], dtype=np.int64)
        token_T = np.concatenate([state.token_R[rows], *new])
        row_T = np.concatenate([rows, np.repeat(run_rows, [r.new for r in runs])])
        pos_T = np.concatenate([state.length_R[rows], *(np.arange(r.past, r.total) for r in runs)])
        n = len(rows)
        # the runs come after the decoded tokens
        runs = [RowRun(r.start + n, r.stop + n, r.row, r.past) for r in runs]
        keep = np.concatenate([np.arange(n), np.array([r.stop - 1 for r in runs], dtype=np.int64)])
        logits = self.forward(token_T, row_T, pos_T, rows, runs, keep)
        state.length_R[rows] += 1
        state.length_R[run_rows] = [r.total for r in runs]
        state.active_R[run_rows] = True
        return self._record(np.concatenate([rows, run_rows]), logits)

    # -- one step ------------------------------------------------------------------------------------------------

    def _admit(self) -> tuple[list[RowRun], list[np.ndarray]]:
        """Takes waiting requests, up to the prefill budget: their runs (numbered from 0) and new tokens."""
        runs: list[RowRun] = []
        new: list[np.ndarray] = []
        later: list[_Session] = []
        at = 0
        while self._waiting and at < self.prefill_tokens:
            session = self._waiting.popleft()
            request = session.request
            assert request is not None
            row = session.row
            if self._prefixes is not None and not session.history:
                match = self._prefixes.match(request.tokens)
                if match.better_later:
                    later.append(session)
                    continue
                if match.length > session.cached:
                    self._cache.copy(match.row, row, match.length)
                    session.cached = match.length
                    self.reused_tokens += match.length
                self._prefixes.add(row, request.tokens)
            fresh = np.array((session.history + request.tokens)[session.cached :], dtype=np.int64)
            runs.append(RowRun(at, at + len(fresh), row, session.cached))
            new.append(fresh)
            at += len(fresh)
            room = self.max_length - len(session.history) - len(request.tokens)
            self._rows.begin(row, request.seed, min(request.max_tokens, room), request.skip)
            begun = (session.history + request.tokens)[-request.skip :] if request.skip else ()
            self._cuts.begin(row, request.cut, begun)
        self._waiting.extendleft(reversed(later))
        if self._prefixes is not None:
            self._prefixes.encoded()
        return runs, new

    def forward(
        self,
        token_T: np.ndarray,
        row_T: np.ndarray,
        pos_T: np.ndarray,
        rows: np.ndarray,
        runs: list[RowRun],
        keep: np.ndarray,
    ) -> Tensor:
        """Logits (N, V) at the tokens ``keep``; the cache then holds all T tokens. The first are those of ``rows``."""
        top = int(pos_T.max()) + 1
        self._cache.reserve(top)
        token, row, pos = (torch.from_numpy(x).to(self.device) for x in (token_T, row_T, pos_T))
        plan = CachePlan(
            cache=self._cache,
            row_T=row,
            pos_T=pos,
            bands=bands(rows, pos_T[: len(rows)], self.device),
            groups=group_runs(runs, self.padding),
            device=self.device,
            longest=top,
        )
        keep_N = torch.from_numpy(keep).to(self.device) if runs else None
        self.forwards += 1
        self.encoded_tokens += len(token_T)
        if (body := self._known_body()) is not None:
            return body(token, pos, plan, keep_N)
        logits = self.model(
            input_ids=token[None],
            position_ids=pos[None],
            use_cache=False,
            logits_to_keep=0 if keep_N is None else keep_N,
            turnwise_plan=plan,
        ).logits[0]
        if len(plan.seen) != self._layers:
            raise ModelError(
                f"{type(self.model).__name__}: {len(plan.seen)} of {self._layers} layers used the engine's cache; "
                "the others have a state that it cannot hold"
            )
        return logits

    def _computed(self) -> str:
        """How a model of known code is computed."""
        body = self._known_body()
        return "" if body is None else f", {body.how}"

    def _known_body(self) -> Body | CompiledBody | None:
        """What computes the model in fewer operations, where its code is known and it is small."""
        if self._body_of is not self.model:
            self._body_of = self.model
            self._body = body_of(self.model) if small(self.model) else None
        return self._body

    def _record(self, rows: np.ndarray, logits: Tensor) -> list[Completion]:
        """Samples one token for each of ``rows`` and finishes those that end."""
        uniform = torch.from_numpy(self._rows.uniform(rows)).to(self.device)
        drawn = draw(logits, uniform, self.sampling)
        out = torch.stack([x.double() for x in drawn]).cpu().numpy()
        full = self._rows.record(rows, out)
        self.sampled_tokens += len(rows)
        ended = self._ends[self._rows.token_R[rows]]
        cut = self._cuts.after(rows, self._rows.token_R[rows])
        return [
            self._finish(int(rows[i]), StopReason.END if ended[i] else StopReason.CUT if cut[i] else StopReason.LENGTH)
            for i in np.flatnonzero(ended | full | cut)
        ]

    def _finish(self, row: int, stop: StopReason) -> Completion:
        name = self._owner[row]
        session = self._sessions[name]
        request = session.request
        assert request is not None
        tokens, logp, entropy = self._rows.result(row)
        session.history += request.tokens + tokens
        session.cached = len(session.history) - 1  # the last token was sampled, not read
        session.request = None
        return Completion(name, tokens, logp, entropy, stop, self.version)
