"""A line to an endpoint that means ill: every request ends at its deadline, with bounded memory and printable words."""

import gzip
import json
import socket
import ssl
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from judge_cases import episode

from agents.endpoint.line import BODY_MAX, Answer, Line, NoAnswer, printable
from agents.judge import JudgeError, JudgeKind, JudgeSettings
from agents.judge.endpoint import EndpointJudge

Send = Callable[[bytes], None]
GOOD = b'{"choices": [{"message": {"content": "Step 0 Judgment: GOOD"}}]}'
BOMB = gzip.compress(gzip.compress(bytes(200 << 20)))
"""200 MB, compressed twice."""
SOON = 0.6
"""Seconds until the deadline."""


def answered(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    head = b"\r\n".join((b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *headers))
    return head + b"\r\n\r\n" + body


def well(send: Send) -> None:
    send(answered(GOOD))


def endless_early_hints(send: Send) -> None:
    while True:
        send(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 50)


def dripped_headers(send: Send) -> None:
    for byte in b"HTTP/1.1 200 OK\r\nX: " + b"y" * 1000:
        send(bytes([byte]))
        time.sleep(0.05)


def dripped_body(send: Send) -> None:
    send(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
    while True:
        send(b" ")
        time.sleep(0.05)


def empty_gzip_blocks(send: Send) -> None:
    send(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n")
    block = gzip.compress(b"")
    while True:
        send(b"%x\r\n%s\r\n" % (len(block), block))


def empty_chunks(send: Send) -> None:
    send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        send(b"1;%s\r\n \r\n" % (b"x" * 1000))
        time.sleep(0.01)


def twice_compressed(send: Send) -> None:
    send(answered(BOMB, b"Content-Encoding: gzip, gzip"))


def larger_than_allowed(send: Send) -> None:
    send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (BODY_MAX * 4))
    for _ in range(64):
        send(bytes(BODY_MAX // 16))


def silent(send: Send) -> None:
    time.sleep(30)


HOSTILE = (
    *(endless_early_hints, dripped_headers, dripped_body, empty_gzip_blocks, empty_chunks),
    *(twice_compressed, larger_than_allowed, silent),
)


@contextmanager
def serving(*scripts: Callable[[Send], None]) -> Iterator[str]:
    """The address of a server that plays the scripts, one a connection, the last one again and again."""
    server = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def play(connection: socket.socket, script: Callable[[Send], None]) -> None:
        def send(data: bytes) -> None:
            if over.is_set():
                raise OSError
            connection.sendall(data)

        with connection:
            try:
                while connection.recv(1 << 20):  # several requests on a connection that is well
                    script(send)
            except OSError:
                pass

    def accept() -> None:
        number = 0
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            script = scripts[min(number, len(scripts) - 1)]
            threading.Thread(target=play, args=(connection, script), daemon=True).start()
            number += 1

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1"
    finally:
        over.set()
        server.shutdown(socket.SHUT_RDWR)
        server.close()


@contextmanager
def line_to(url: str) -> Iterator[Line]:
    line = Line(httpx2.URL(url), {}, ssl.create_default_context())
    try:
        yield line
    finally:
        line.close()


@pytest.mark.parametrize("script", HOSTILE, ids=lambda script: script.__name__)
def test_a_request_ends_and_the_next_one_is_answered(script: Callable[[Send], None]) -> None:
    with serving(script, well) as url, line_to(url) as line:
        started = time.monotonic()
        tracemalloc.start()
        with pytest.raises(NoAnswer) as error:
            line.post({"messages": []}, started + SOON)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert time.monotonic() - started < SOON + 1.5
        assert peak < 3 * BODY_MAX and str(error.value).isprintable()
        assert line.post({"messages": []}, time.monotonic() + 10) == Answer(200, 0.0, GOOD)


def test_a_dropped_request_is_seen_by_the_server_and_never_made_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        line = Line(httpx2.URL(f"http://127.0.0.1:{server.getsockname()[1]}/v1"), {}, ssl.create_default_context())
        asked = pool.submit(line.post, {"x": 1}, time.monotonic() + 60)
        other, _ = server.accept()
        with other:
            other.settimeout(10)
            assert other.recv(1 << 16)
            line.drop()
            left = other.recv(1 << 16)
            while left:
                left = other.recv(1 << 16)
        with pytest.raises(NoAnswer):
            asked.result()
        with pytest.raises(NoAnswer, match="dropped"):
            line.post({"x": 1}, time.monotonic() + 60)


def test_what_is_on_this_machine_is_asked_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with serving(well) as url, line_to(url) as line:
        assert line.post({}, time.monotonic() + 30).body == GOOD


def test_without_the_outer_deadline_some_would_not_end() -> None:
    """The control: the library alone counts from the last byte."""
    with serving(dripped_body) as url, httpx2.Client(timeout=SOON) as client:
        ended = threading.Event()

        def ask() -> None:
            try:
                client.post(url, json={})
            except httpx2.HTTPError:
                return  # closed below
            finally:
                ended.set()

        threading.Thread(target=ask, daemon=True).start()
        assert not ended.wait(3 * SOON)


@pytest.fixture
def opened() -> Iterator[list[EndpointJudge]]:
    """Judges that are closed after the test."""
    result: list[EndpointJudge] = []
    yield result
    for judge in result:
        judge.close()


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        ('{"prompt_tokens": 7, "completion_tokens": 2}', (7, 2)),
        ('{"prompt_tokens": Infinity, "completion_tokens": NaN}', (0, 0)),
        ('{"prompt_tokens": 1e999, "completion_tokens": -3}', (0, 0)),
        ('{"prompt_tokens": "7", "completion_tokens": true}', (0, 0)),
        ('{"prompt_tokens": ' + "9" * 5000 + "}", None),
        ("[]", (0, 0)),
        ('"much"', None),
    ],
)
def test_counts_that_are_none_count_nothing(
    usage: str, counted: tuple[int, int] | None, opened: list[EndpointJudge]
) -> None:
    body = GOOD[:-1] + b', "usage": ' + usage.encode() + b"}"
    with serving(lambda send: send(answered(body))) as url:
        judge = judge_at(url)
        opened.append(judge)
        if counted is None:  # no chat completion at all
            with pytest.raises(JudgeError, match="not a chat completion"):
                judge.label([episode(("look", "a box"))], [1.0])
            return
        verdicts = judge.label([episode(("look", "a box"))], [1.0])
    assert verdicts.labels == [(True,)]
    assert (verdicts.stats["prompt_tokens"], verdicts.stats["completion_tokens"]) == counted


def judge_at(url: str, **settings: Any) -> EndpointJudge:
    told = JudgeSettings(
        kind=JudgeKind.ENDPOINT, model="m", base_url=url, **{"timeout": 5.0, "api_max_retries": 0, **settings}
    )
    return EndpointJudge(told, {})


@pytest.mark.parametrize("status", [b"401 No", b"500 Broken"])
def test_what_a_server_says_cannot_move_a_terminal(status: bytes, opened: list[EndpointJudge]) -> None:
    said = "\x1b]0;owned\x07\x1b[2J\r\nline\u202e\u009b31m".encode()
    with serving(lambda send: send(answered(said, status=status))) as url, pytest.raises(JudgeError) as error:
        opened.append(judge_at(url))
        opened[0].label([episode(("look", "a box"))], [1.0])
    assert str(error.value).isprintable() and "owned" in str(error.value)
    # The control: as it came it does.
    assert not said.decode().isprintable() and printable(said.decode()).isprintable()


def test_a_judge_that_drips_is_given_up_in_time() -> None:
    with serving(dripped_headers) as url:
        judge = judge_at(url, timeout=SOON, patience=3 * SOON)
        started = time.monotonic()
        with pytest.raises(JudgeError, match="answered none of 4 requests"):
            judge.label([episode(("look", "a box"), sample=i) for i in range(4)], [1.0] * 4)
        assert time.monotonic() - started < 3 * SOON + 3
        judge.close()
    assert json.loads(GOOD)["choices"]
