"""A server on the loopback that speaks as vLLM's does, around a model in this process, and has faults on demand.

`tests/vllm_engine/test_vllm_server.py` holds the engine to the real one.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
from engine_cases import plain
from transformers import PreTrainedModel

Fault = Callable[[dict[str, Any]], tuple[int, bytes] | None]
"""Answers a request otherwise: status and body; None sends nothing and hangs up."""


@dataclass
class Twin:
    model: PreTrainedModel
    url: str = ""
    max_length: int = 400
    faults: dict[str, Fault] = field(default_factory=dict)
    """By the last word of the path."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Path and key of every request."""

    def models(self, body: dict[str, Any]) -> Any:
        return {"data": [{"id": "tiny", "parent": None, "max_model_len": self.max_length}]}

    def completions(self, body: dict[str, Any]) -> Any:
        tokens, top, draws = list(body["prompt"]), [], torch.Generator().manual_seed(body["seed"] % (1 << 62))
        said: list[int] = []
        while len(said) < body["max_tokens"] and not (said and said[-1] in body["stop_token_ids"]):
            logp_V = plain(self.model, tokens, body["temperature"] or 1.0)[-1]
            best = int(logp_V.argmax())
            said.append(int(torch.multinomial(logp_V.exp(), 1, generator=draws)) if body["temperature"] else best)
            tokens.append(said[-1])
            named = {said[-1], *logp_V.topk(body["logprobs"]).indices.tolist()}
            top.append({f"token_id:{i}": float(logp_V[i]) for i in named})
        ended = said[-1] in body["stop_token_ids"]
        choice = {"token_ids": said, "logprobs": {"top_logprobs": top}, "finish_reason": "stop" if ended else "length"}
        return {"choices": [choice | {"stop_reason": said[-1] if ended else None}]}

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, bytes] | None:
        if path in self.faults:
            return self.faults[path](body)
        return 200, json.dumps(getattr(self, path)(body)).encode()


@contextmanager
def twin_of(model: PreTrainedModel) -> Iterator[Twin]:
    twin = Twin(model)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))) or b"{}")
            path = self.path.removeprefix("/v1/")
            twin.asked.append((path, self.headers.get("Authorization", "")))
            answer = twin.answer(path, body)
            self.close_connection = answer is None
            if answer is not None:
                self.send_response(answer[0])
                self.send_header("Content-Length", str(len(answer[1])))
                self.end_headers()
                self.wfile.write(answer[1])

        def handle(self) -> None:
            with suppress(OSError):  # the caller did not wait
                super().handle()

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    twin.url = f"http://127.0.0.1:{http.server_port}/v1"
    try:
        yield twin
    finally:
        http.shutdown()
        http.server_close()


def slow(seconds: float) -> Fault:
    def sleeps(body: dict[str, Any]) -> None:
        time.sleep(seconds)

    return sleeps
