"""A client of an OpenAI-compatible endpoint: requests that are repeated, paced, counted, and that end.

Invariants: every request ends, by an answer, by ``retries``, or by ``patience``; the key is sent to the endpoint and
nowhere else: whatever is raised or returned for a person has been through `_without_key`.
"""

import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, ClassVar, TypeVar

import httpx2

from agents.endpoint.keys import key_name, usable_key, without_key
from agents.endpoint.line import Answer, Line, NoAnswer, printable

T = TypeVar("T")
_WRONG = {401: "refused the key", 402: "asks to be paid", 403: "refused the key", 404: "knows no such model or address"}
_INSPECTED = ("data_inspection_failed", "datainspectionfailed", "content_filter", "inappropriate content")
READY = [{"role": "user", "content": "Say: ready"}]
"""What is asked to find out whether anybody is there."""


def wait_seconds(attempt: int, *, limited: bool, chance: float) -> float:
    """How long to wait after the failed try number ``attempt``, from 0; ``chance`` in 0..1 spreads those who wait.

    Where the endpoint limits the rate: min(1.5^attempt, 60) (1 + chance / 4); else min(2 (attempt + 1), 15).
    """
    if limited:
        return min(1.5 ** min(attempt, 20), 60.0) * (1 + 0.25 * chance)
    return min(2.0 * (attempt + 1), 15.0)


class EndpointError(RuntimeError):
    """The endpoint cannot be used; one line that says how to fix it and holds no secret."""


@dataclass
class Bill:
    """What some requests took."""

    calls: int = 0
    """Requests that were sent, those that failed included."""
    retries: int = 0
    failures: int = 0
    """Questions without an answer in the end."""
    inspected: int = 0
    """Questions that the endpoint's content inspection does not let through."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0


@dataclass(frozen=True)
class Limits:
    """How long a client goes on asking."""

    timeout: float
    """Seconds that one request may take."""
    patience: float
    """Seconds after which a question is given up, retries and waits included."""
    retries: int
    rate: float = 0.0
    """Requests a minute; 0 for no limit of our own."""


class Failed(Exception):  # noqa: N818
    """A question brought no answer."""

    def __init__(self, why: str, *, limited: bool = False, again: bool = True, least_wait: float = 0.0) -> None:
        super().__init__(why)
        self.limited, self.again, self.least_wait = limited, again, least_wait
        self.inspected = False
        self.tries = 1


def count(value: Any) -> int:
    """A number of tokens; what is none counts nothing."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9 else 0


class Client:
    """Asks a model behind an endpoint, from any number of threads. Whoever asks one derives from it.

    ``sleep`` waits this many seconds; tests pass one that does not.
    """

    who: ClassVar[str] = "the model"
    flags: ClassVar[tuple[str, str]] = ("--endpoint", "--model")
    """The settings that name the address and the model."""
    error: ClassVar[type[RuntimeError]] = EndpointError
    """What is raised where asking again can never help."""

    def __init__(
        self,
        url: str,
        limits: Limits,
        environ: Mapping[str, str] = os.environ,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self.address, self.limits, flag = url, limits, self.flags[0]
        try:
            self._url = httpx2.URL(url.rstrip("/") + "/chat/completions")
        except httpx2.InvalidURL as error:
            raise self.error(f"{flag} is not an address: {error}") from None
        self._key, self._key_name = usable_key(self._url, environ, self.who, flag, self.error), key_name(self._url.host)
        # Its debug lines show the headers of answers, in which an endpoint may repeat what it was sent.
        logging.getLogger("httpcore2").setLevel(logging.INFO)
        self._secure = httpx2.create_ssl_context()
        self._idle: list[Line] = []
        """Open lines that no request uses."""
        self._lock = threading.Lock()
        self._gone = threading.Event()
        self._sleep = sleep or self._gone.wait
        self._next = 0.0
        """When the next request may be sent."""
        self._bill = Bill()
        self._last_failure = ""

    def check_reachable(self, body: Mapping[str, Any], read: Callable[[dict[str, Any]], object]) -> None:
        """Makes one short request; ``read`` is as in `ask`. Raises `error` where nobody answers; who limits the rate
        is there."""
        try:
            self._post(body, read, monotonic() + min(self.limits.timeout, 30.0))
        except Failed as failed:
            if not failed.limited:
                raise self.error(
                    f"{self.who} at {self.address} cannot be reached ({failed}): check {', '.join(self.flags)} and the "
                    "key"
                ) from None

    def close(self) -> None:
        self._gone.set()
        while self._idle:
            self._idle.pop().close()

    def ask(
        self, body: Mapping[str, Any], read: Callable[[dict[str, Any]], T], chance: Callable[[int], float]
    ) -> tuple[T, int]:
        """(what ``read`` makes of the answer, tries). ``chance`` of a failed try, in 0..1, spreads the waits.

        ``read`` may raise what reading a wrong value raises: the answer then counts as broken. Raises Failed where
        there is no answer in the end, and `error`.
        """
        self._wait_turn()
        until, inspections, attempt = monotonic() + self.limits.patience, 0, 0
        while True:
            try:
                return self._post(body, read, until), attempt + 1
            except Failed as failed:
                inspections += failed.inspected
                wait = max(wait_seconds(attempt, limited=failed.limited, chance=chance(attempt)), failed.least_wait)
                over = monotonic() + wait >= until or self._gone.is_set()
                if not failed.again or attempt >= self.limits.retries or inspections == 2 or over:
                    with self._lock:
                        self._bill.failures += not inspections
                        self._bill.inspected += inspections > 0
                        self._last_failure = str(failed)
                    failed.tries, failed.inspected = attempt + 1, inspections > 0
                    raise
                with self._lock:
                    self._bill.retries += 1
                self._sleep(wait)
                self._wait_turn()
                attempt += 1

    def _wait_turn(self) -> None:
        """Waits until the pace allows another request."""
        if not self.limits.rate:
            return
        with self._lock:
            now = monotonic()
            at = max(self._next, now)
            self._next = at + 60 / self.limits.rate
        if at > now:
            self._sleep(at - now)

    @contextmanager
    def _line(self) -> Iterator[Line]:
        """A line for one request."""
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        with self._lock:
            line = self._idle.pop() if self._idle else Line(self._url, headers, self._secure)
        try:
            yield line
        finally:
            with self._lock:
                self._idle.append(line)
            if self._gone.is_set():
                line.close()

    def _post(self, body: Mapping[str, Any], read: Callable[[dict[str, Any]], T], until: float) -> T:
        """The answer to one request. Raises Failed, and `error` where asking again can never help."""
        until = min(until, monotonic() + self.limits.timeout)
        with self._lock:
            self._bill.calls += 1
        try:
            with self._line() as line:
                answer = line.post(body, until)
        except NoAnswer as error:
            raise Failed(self._without_key(str(error))) from None
        if answer.status != 200:
            raise self._refusal(answer)
        try:
            values: dict[str, Any] = json.loads(answer.body)
            usage = values.get("usage") or {}
            paid = [count(usage.get(name)) for name in ("prompt_tokens", "completion_tokens")]
            result = read(values)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
            raise Failed("an answer that is not a chat completion") from None
        with self._lock:
            self._bill.prompt_tokens += paid[0]
            self._bill.completion_tokens += paid[1]
        return result

    def _refusal(self, answer: Answer) -> Failed:
        """What an answer with an error status means. Raises `error` where it means the same for every request."""
        status = answer.status
        text = self._without_key(printable(answer.body[:2000].decode("utf-8", "replace")))
        why = f"status {status}{': ' + text[:300] if text else ''}"
        if any(word in text.casefold() for word in _INSPECTED):
            failed = Failed(why)
            failed.inspected = True
            return failed
        if status in _WRONG or 300 <= status < 400:
            wrong = _WRONG.get(status, "sends its callers elsewhere")
            raise self.error(
                f"{self.who} at {self.address} {wrong} ({why}): check {self.flags[0]}, {self.flags[1]} and "
                f"the key in {self._key_name}"
            )
        return Failed(
            why,
            limited=status == 429,
            again=status in (408, 409, 425, 429) or status >= 500,
            least_wait=answer.retry_after,
        )

    def _without_key(self, text: str) -> str:
        return without_key(text, self._key)
