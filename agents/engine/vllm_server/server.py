"""The HTTP side: a server's models, its adapters, and completions of token ids.

Invariants: every request ends at its deadline; nothing in an answer is trusted: tokens are ids of the vocabulary,
log-probs are finite, texts lose their control characters and the key. A request that found no connection is made once
more, because servers close idle ones; it is seeded, so nothing is drawn anew.
"""

import json
import logging
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import Any

import httpx2

from agents.endpoint.keys import key_name, usable_key, without_key
from agents.endpoint.line import Answer, Line, NoAnswer, printable
from agents.engine.base import SamplingSettings
from agents.text.errors import EngineError

LORA = "start it with --enable-lora --max-lora-rank R and with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment"
LOAD, UNLOAD, COMPLETE, MODELS = "load_lora_adapter", "unload_lora_adapter", "completions", "models"
ADMINISTRATION = 120.0
"""Most seconds for an answer that samples nothing."""


@dataclass(frozen=True)
class Piece:
    """What the server sampled for one request."""

    tokens: tuple[int, ...]
    top: tuple[Mapping[int, float], ...]
    """For each token the log-probs of the most probable ones and of the sampled one."""
    full: bool
    """It is as long as it may be."""
    stopped_by: int | str | None
    """The token or the text that ended it."""


@dataclass(frozen=True)
class Served:
    """The base model as the server lists it."""

    name: str
    max_length: int


class Server:
    """Asks the server at ``url``, from any number of threads. Raises EngineError, in one line, for all that fails."""

    def __init__(self, url: str, patience: float, environ: Mapping[str, str] = os.environ) -> None:
        self.url, self.patience = url.rstrip("/"), patience
        self.vocabulary = 0
        """Token ids in answers are below it."""
        try:
            address = httpx2.URL(self.url)
        except httpx2.InvalidURL:
            raise EngineError("--vllm-server.url is not an address") from None
        self._key = usable_key(address, environ, "the vLLM server", "--vllm-server.url", EngineError)
        self._key_name = key_name(address.host)
        # Its debug lines show the headers of answers, in which a server may repeat what it was sent.
        logging.getLogger("httpcore2").setLevel(logging.INFO)
        self._secure = httpx2.create_ssl_context()
        self._idle: list[Line] = []
        self._lock = Lock()

    # -- lines ---------------------------------------------------------------------------------------------------

    def line(self) -> Line:
        """A connection for completions that no other request uses."""
        with self._lock:
            return self._idle.pop() if self._idle else self._open(COMPLETE)

    def give_back(self, line: Line) -> None:
        with self._lock:
            if not line.dropped:
                self._idle.append(line)

    def close(self) -> None:
        with self._lock:
            while self._idle:
                self._idle.pop().close()

    def _open(self, path: str) -> Line:
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        return Line(httpx2.URL(f"{self.url}/{path}"), headers, self._secure)

    # -- questions -----------------------------------------------------------------------------------------------

    def base_model(self, name: str) -> Served:
        """The base model called ``name``; the first of those listed where that is empty."""
        answer = self._ask(MODELS, None)
        try:
            cards = [card for card in json.loads(answer)["data"] if card.get("parent") is None]
            served = {str(card["id"]): int(card["max_model_len"]) for card in cards}
            first = next(iter(served))
        except (ValueError, TypeError, KeyError, AttributeError, StopIteration, RecursionError):
            raise self.error("does not list its models as vLLM does") from None
        if name and name not in served:
            raise self.error(f"serves no model {name!r}, but {printable(', '.join(served))[:200]}: --vllm-server.model")
        return Served(name or first, served[name or first])

    def load(self, name: str, folder: str) -> None:
        self._ask(LOAD, {"lora_name": name, "lora_path": folder}, f"cannot load an adapter from {folder}; {LORA}")

    def unload(self, name: str) -> None:
        self._ask(UNLOAD, {"lora_name": name}, f"cannot unload an adapter; {LORA}")

    def complete(
        self,
        line: Line,
        model: str,
        prompt: Sequence[int],
        limit: int,
        seed: int,
        sampling: SamplingSettings,
        stop_ids: Sequence[int],
        stop: Sequence[str],
        top: int,
    ) -> Piece:
        """At most ``limit`` tokens after ``prompt``, up to one of ``stop_ids`` or to the text ``stop``."""
        body = {
            "model": model,
            "prompt": list(prompt),
            "max_tokens": limit,
            "seed": seed,
            "temperature": 0.0 if sampling.greedy else sampling.temperature,
            "top_p": 1.0 if sampling.greedy else sampling.top_p,
            "top_k": 0 if sampling.greedy else sampling.top_k,
            # The rest is said, too, because the server's defaults come from the model's folder.
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "stop_token_ids": list(stop_ids),
            "stop": list(stop),
            "ignore_eos": True,
            "logprobs": top,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            "add_special_tokens": False,
        }
        answer = self._ask(COMPLETE, body, "does not complete a prompt", line)
        try:
            return self._piece(json.loads(answer), limit)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
            raise self.error("gives no token ids with log-probs as vLLM does") from None

    def _piece(self, values: Any, limit: int) -> Piece:
        """Raises what reading a wrong value raises."""
        (choice,) = values["choices"]
        tokens = tuple(choice["token_ids"])
        top = tuple({_id(name): _logp(x) for name, x in at.items()} for at in choice["logprobs"]["top_logprobs"])
        for token, at in zip(tokens, top, strict=True):
            if type(token) is not int or not 0 <= token < self.vocabulary or token not in at:
                raise ValueError
        if not 1 <= len(tokens) <= limit or choice["finish_reason"] not in ("stop", "length"):
            raise ValueError
        by = choice.get("stop_reason")
        return Piece(tokens, top, choice["finish_reason"] == "length", by if isinstance(by, int | str) else None)

    # -- one request ---------------------------------------------------------------------------------------------

    def _ask(self, path: str, body: Any, cannot: str = "does not answer", line: Line | None = None) -> bytes:
        own = line or self._open(path)
        patience = self.patience if path == COMPLETE else min(self.patience, ADMINISTRATION)
        until = monotonic() + patience
        try:
            try:
                answer = own.get(until) if body is None else own.post(body, until)
            except NoAnswer:
                if monotonic() >= until or own.dropped:
                    raise
                answer = own.get(until) if body is None else own.post(body, until)
        except NoAnswer as error:
            late = f" within {patience:g} s (--vllm-server.patience)" if monotonic() >= until else ""
            raise self.error(f"does not answer{late}: {without_key(str(error), self._key)[:300]}") from None
        finally:
            if line is None:
                own.close()
        if answer.status != 200:
            raise self._refusal(answer, cannot)
        return answer.body

    def _refusal(self, answer: Answer, cannot: str) -> EngineError:
        if answer.status in (401, 403):
            return self.error(f"refuses the key: export {self._key_name}=… as --api-key has it")
        said = without_key(printable(answer.body[:2000].decode("utf-8", "replace")), self._key)[:300]
        return self.error(f"{cannot} (status {answer.status}: {said})")

    def error(self, what: str) -> EngineError:
        return EngineError(f"the vLLM server at {self.url} {what}")


def _id(name: str) -> int:
    """The token of "token_id:17"."""
    return int(name.removeprefix("token_id:"))


def _logp(value: Any) -> float:
    number = float(value)
    if not (math.isfinite(number) and number < 1e-3):
        raise ValueError
    return number
