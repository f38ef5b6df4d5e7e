"""A judge's endpoint on the loopback: a real HTTP server that answers as it is told."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Answer:
    """What is sent back."""

    content: str | None = None
    """The reply; None sends ``body`` instead."""
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    """How long it takes."""

    def bytes(self) -> bytes:
        if self.content is None:
            return self.body
        usage = {"prompt_tokens": 100, "completion_tokens": 10}
        return json.dumps({"choices": [{"message": {"content": self.content}}], "usage": usage}).encode()


@dataclass
class Asked:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def user(self) -> str:
        return self.body["messages"][-1]["content"]

    @property
    def steps(self) -> int:
        """How many steps are to be judged; 0 when it is asked whether it is there."""
        found = re.search(r"\(total (\d+) steps\)", self.user)
        return int(found[1]) if found else 0


Script = Callable[[Asked, int], Answer]
"""A request, and how many of the same question came before it."""


def judgments(*labels: str, first: int = 0) -> str:
    return "\n".join(f"Step {first + k} Analysis: so\nStep {first + k} Judgment: {x}" for k, x in enumerate(labels))


def praise(asked: Asked, before: int) -> Answer:
    """Every step is GOOD."""
    return Answer(judgments(*["GOOD"] * asked.steps) or "ready")


@dataclass
class Server:
    url: str
    asked: list[Asked] = field(default_factory=list)
    most: int = 0
    """Most requests that were being answered at once."""

    @property
    def questions(self) -> list[Asked]:
        """Without those that only looked whether it is there."""
        return [asked for asked in self.asked if asked.steps]


@contextmanager
def judge_server(script: Script = praise) -> Iterator[Server]:
    server, lock, now = Server(""), threading.Lock(), [0]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked = Asked(self.path, dict(self.headers), body)
            with lock:
                before = sum(other.user == asked.user for other in server.asked)
                server.asked.append(asked)
                now[0] += 1
                server.most = max(server.most, now[0])
            answer = script(asked, before)
            time.sleep(answer.seconds)
            data = answer.bytes()
            with lock:
                now[0] -= 1
            try:
                self.send_response(answer.status)
                for name, value in ({"Content-Length": str(len(data))} | answer.headers).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)
            except OSError:  # the caller did not wait
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    server.url = f"http://127.0.0.1:{http.server_port}/v1"
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
