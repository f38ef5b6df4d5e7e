"""A line to an endpoint: one request at a time, each with an end.

Invariant: a request ends at its deadline whatever the other side sends (headers without end, one byte a minute, empty
blocks), because the deadline is kept by the caller and not by the HTTP library, which counts from the last byte. No
more than `BODY_MAX` bytes are kept, and nothing is decompressed.
"""

import socket
import ssl
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

import httpx2

from agents.endpoint.keys import is_loopback

BODY_MAX = 1 << 23
"""Bytes of an answer that are read; a longer one is none."""


class NoAnswer(Exception):  # noqa: N818 (a state of the world)
    """A request brought no answer; the text holds no control characters."""


@dataclass(frozen=True)
class Answer:
    """What came back, whatever its status."""

    status: int
    retry_after: float
    """Seconds that the other side asks to wait; 0 where it does not."""
    body: bytes


def printable(text: str) -> str:
    """One line without control characters: what a server sends may be shown on a terminal."""
    return "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text.split()))


class Line:
    """One connection to ``url``, opened again after a request that had to be given up. Not for several threads."""

    def __init__(self, url: httpx2.URL, headers: dict[str, str], secure: ssl.SSLContext) -> None:
        self._url, self._secure = url, secure
        self._headers = {**headers, "Accept-Encoding": "identity"}
        self._client: httpx2.Client | None = None
        self._stream: Any = None
        """What the connection is read from."""
        self.dropped = False

    def post(self, body: Any, until: float) -> Answer:
        """The answer to ``body`` as JSON, before ``until`` on the monotonic clock. Raises NoAnswer."""
        return self._ask("POST", until, json=body)

    def get(self, until: float) -> Answer:
        """As `post`, without a body."""
        return self._ask("GET", until)

    def _ask(self, method: str, until: float, **content: Any) -> Answer:
        if self.dropped:
            raise NoAnswer("the request was dropped")
        if self._client is None:
            # What is on this machine is asked without a proxy, which would read the key.
            trust = not is_loopback(self._url.host)
            self._client = httpx2.Client(headers=self._headers, verify=self._secure, trust_env=trust)
        self._client.timeout = httpx2.Timeout(max(0.001, until - monotonic()))
        future: Future[Answer] = Future()
        # A thread that nobody waits for ends with its connection, at the latest with the process.
        request = self._client.build_request(method, self._url, extensions={"trace": self._watch}, **content)
        threading.Thread(target=_answer, args=(future, self._client, request), daemon=True).start()
        try:
            return future.result(max(0.0, until - monotonic()))
        except TimeoutError:
            self.close()
            raise NoAnswer("no answer in time") from None
        except NoAnswer:
            self.close()
            raise

    def close(self) -> None:
        """Closes the connection, also under a request that runs: the server sees it at once. Safe to call twice."""
        client, self._client = self._client, None
        stream, self._stream = self._stream, None
        if stream is not None and (end := stream.get_extra_info("socket")) is not None:
            with suppress(OSError):  # a close alone waits for a thread that reads
                end.shutdown(socket.SHUT_RDWR)
        if client is not None:
            client.close()

    def drop(self) -> None:
        """Closes it for good: the request that runs is given up, and no other one is made."""
        self.dropped = True
        self.close()

    def _watch(self, event: str, info: Mapping[str, Any]) -> None:
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._stream = info["return_value"]


def _answer(future: Future[Answer], client: httpx2.Client, request: httpx2.Request) -> None:
    """Makes one request, in a thread of its own, and gives the future its answer, or a NoAnswer."""
    try:
        future.set_result(_fetch(client, request))
    except NoAnswer as error:
        future.set_exception(error)
    except httpx2.TimeoutException:
        future.set_exception(NoAnswer("no answer in time"))
    except Exception as error:  # the library's own, and those of a connection that was closed under it
        future.set_exception(NoAnswer(printable(f"{type(error).__name__}: {error}")))


def _fetch(client: httpx2.Client, request: httpx2.Request) -> Answer:
    read = bytearray()
    with closing(client.send(request, stream=True)) as response:
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise NoAnswer("a compressed answer, which was not asked for")
        for chunk in response.iter_raw():
            read += chunk
            if len(read) > BODY_MAX:
                raise NoAnswer(f"an answer of more than {BODY_MAX} bytes")
    return Answer(response.status_code, _seconds(response.headers.get("Retry-After", "0")), bytes(read))


def _seconds(text: str) -> float:
    """Seconds to wait, 0 to 60; 0 for a date."""
    try:
        return min(max(float(text), 0.0), 60.0)
    except ValueError:
        return 0.0
