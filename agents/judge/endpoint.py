"""A judge that asks a language model behind an OpenAI-compatible endpoint.

Invariants: every request ends, by an answer, by ``api_max_retries``, or by ``patience``; the key is sent to the
endpoint and nowhere else: whatever is written or raised has been through `_without_key`. An episode without a readable
answer has no labels.
"""

import json
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from time import monotonic
from typing import Any

import httpx2

from agents.judge.base import JudgeError, JudgeSettings, Labels, Verdicts
from agents.judge.crew import Crew
from agents.judge.parse import parse_judgments
from agents.judge.prompt import Message, messages_of
from agents.tree.episode import Episode

_BODY_MAX = 1 << 23
"""Bytes of an answer that are read; a longer one is none."""
_WRONG = {401: "refused the key", 402: "asks to be paid", 403: "refused the key", 404: "knows no such model or address"}
_INSPECTED = ("data_inspection_failed", "datainspectionfailed", "content_filter", "inappropriate content")


def wait_seconds(attempt: int, *, limited: bool, chance: float) -> float:
    """How long to wait after the failed try number ``attempt``, from 0; ``chance`` in 0..1 spreads those who wait.

    Where the endpoint limits the rate: min(1.5^attempt, 60) (1 + chance / 4); else min(2 (attempt + 1), 15).
    """
    if limited:
        return min(1.5 ** min(attempt, 20), 60.0) * (1 + 0.25 * chance)
    return min(2.0 * (attempt + 1), 15.0)


def key_for(host: str, environ: Mapping[str, str]) -> str:
    """The key that ``host`` may see; "" where there is none. One vendor never gets the other's."""
    names = ["DASHSCOPE_API_KEY", "OPENAI_API_KEY"]
    if host.endswith(".aliyuncs.com"):
        names.remove("OPENAI_API_KEY")
    elif host.endswith(".openai.com"):
        names.remove("DASHSCOPE_API_KEY")
    return next((key for name in names if (key := environ.get(name, "").strip())), "")


@dataclass
class Bill:
    """What some requests took."""

    calls: int = 0
    """Requests that were sent, those that failed included."""
    retries: int = 0
    failures: int = 0
    """Episodes without an answer in the end."""
    inspected: int = 0
    """Episodes that the endpoint's content inspection does not let through."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0


class _Failed(Exception):  # noqa: N818
    """A request brought no answer."""

    def __init__(self, why: str, *, limited: bool = False, again: bool = True, least_wait: float = 0.0) -> None:
        super().__init__(why)
        self.limited, self.again, self.least_wait = limited, again, least_wait
        self.inspected = False


class EndpointJudge:
    """Asks a model behind an OpenAI-compatible endpoint. See `agents.judge.base.Judge`.

    ``sleep`` waits this many seconds; tests pass one that does not.
    """

    def __init__(
        self,
        settings: JudgeSettings,
        environ: Mapping[str, str] = os.environ,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self.settings = settings
        try:
            self._url = httpx2.URL(settings.base_url.rstrip("/") + "/chat/completions")
        except httpx2.InvalidURL as error:
            raise JudgeError(f"--judge.base-url is not an address: {error}") from None
        self._key = key_for(self._url.host, environ)
        if not self._key and self._url.host.endswith((".aliyuncs.com", ".openai.com")):
            name = "OPENAI_API_KEY" if self._url.host.endswith(".openai.com") else "DASHSCOPE_API_KEY"
            raise JudgeError(f"the judge at {settings.base_url} needs a key: export {name}=…")
        if not (self._key.isascii() and self._key.isprintable()):
            raise JudgeError(
                "the judge's key holds characters that no key has: check DASHSCOPE_API_KEY, OPENAI_API_KEY"
            )
        # Its debug lines show the headers of answers, in which an endpoint may repeat what it was sent.
        logging.getLogger("httpcore2").setLevel(logging.INFO)
        self._client = httpx2.Client(
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
            timeout=settings.timeout,
            limits=httpx2.Limits(max_connections=settings.concurrent),
        )
        self._lock = threading.Lock()
        self._gone = threading.Event()
        self._sleep = sleep or self._gone.wait
        self._bill = Bill()
        self._last_failure = ""

    def check(self) -> None:
        if self.settings.log_dir is not None:
            try:
                self.settings.log_dir.mkdir(parents=True, exist_ok=True)
                self._log({})
            except OSError as error:
                raise JudgeError(
                    f"cannot write into the judge's log folder {self.settings.log_dir} ({error.strerror}): give "
                    "another with --judge.log-dir"
                ) from None
        hello: list[Message] = [{"role": "user", "content": "Say: ready"}]
        try:
            self._post(hello, tokens=16, until=monotonic() + min(self.settings.timeout, 30.0))
        except _Failed as error:
            if not error.limited:
                raise JudgeError(
                    f"the judge at {self.settings.base_url} cannot be reached ({error}): check --judge.base-url, "
                    "--judge.model and the key"
                ) from None

    def label(self, episodes: Sequence[Episode], scores: Sequence[float]) -> Verdicts:
        self._bill = bill = Bill()
        pairs = list(zip(episodes, scores, strict=True))
        crew = Crew(self.settings.concurrent, self._gone)
        labels = crew.map(lambda pair: self._judged(*pair), pairs)
        if pairs and bill.failures == len(pairs):
            raise JudgeError(
                f"the judge at {self.settings.base_url} answered none of {len(pairs)} requests; the last one failed "
                f"so: {self._last_failure}"
            )
        bill.cost = (
            bill.prompt_tokens * self.settings.price_prompt + bill.completion_tokens * self.settings.price_completion
        ) / 1e6
        return Verdicts(labels, {name: float(x) for name, x in asdict(bill).items()})

    def close(self) -> None:
        self._gone.set()
        self._client.close()

    # -- one episode ---------------------------------------------------------------------------------------------

    def _judged(self, episode: Episode, score: float) -> Labels:
        messages = messages_of(episode, score)
        reply, why, tries = self._answer(messages, episode)
        labels = parse_judgments(reply, len(episode.turns))
        if self.settings.log_dir is not None:
            entry = {"episode": episode.job.id, "model": self.settings.model, "tries": tries, "messages": messages}
            self._log(entry | {"reply": reply, "failure": why, "labels": labels})
        return labels

    def _answer(self, messages: list[Message], episode: Episode) -> tuple[str, str | None, int]:
        """(the reply, why there is none, tries); a reply that there is not is empty."""
        until, inspections, attempt = monotonic() + self.settings.patience, 0, 0
        while True:
            try:
                return self._post(messages, self.settings.reply_tokens, until), None, attempt + 1
            except _Failed as error:
                inspections += error.inspected
                chance = episode.job.seed("judge wait", attempt) / 2**63
                wait = max(wait_seconds(attempt, limited=error.limited, chance=chance), error.least_wait)
                over = monotonic() + wait >= until or self._gone.is_set()
                if not error.again or attempt >= self.settings.api_max_retries or inspections == 2 or over:
                    with self._lock:
                        self._bill.failures += not inspections
                        self._bill.inspected += inspections > 0
                        self._last_failure = str(error)
                    return "", str(error), attempt + 1
                with self._lock:
                    self._bill.retries += 1
                self._sleep(wait)
                attempt += 1

    def _post(self, messages: list[Message], tokens: int, until: float) -> str:
        """The reply to one request. Raises _Failed, and JudgeError where asking again can never help."""
        body = {"model": self.settings.model, "messages": messages, "temperature": 0, "max_tokens": tokens}
        until = min(until, monotonic() + self.settings.timeout)
        with self._lock:
            self._bill.calls += 1
        try:
            with self._client.stream("POST", self._url, json=body) as response:
                read = bytearray()
                for chunk in response.iter_bytes():
                    read += chunk
                    if len(read) > _BODY_MAX:
                        raise _Failed(f"an answer of more than {_BODY_MAX} bytes")
                    if monotonic() > until:
                        raise _Failed("the answer took too long")
        except httpx2.TimeoutException:
            raise _Failed("no answer in time") from None
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise _Failed(self._without_key(f"{type(error).__name__}: {error}")) from None
        if response.status_code != 200:
            raise self._refusal(response, bytes(read))
        try:
            answer: dict[str, Any] = json.loads(read)
            content = answer["choices"][0]["message"]["content"] or ""
            usage = answer.get("usage") or {}
            paid = [int(usage.get(name) or 0) for name in ("prompt_tokens", "completion_tokens")]
            if not isinstance(content, str):
                raise TypeError
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
            raise _Failed("an answer that is not a chat completion") from None
        with self._lock:
            self._bill.prompt_tokens += paid[0]
            self._bill.completion_tokens += paid[1]
        return content

    def _refusal(self, response: httpx2.Response, read: bytes) -> _Failed:
        """What an answer with an error status means. Raises JudgeError where it means the same for every request."""
        status = response.status_code
        answer = self._without_key(" ".join(read[:2000].decode("utf-8", "replace").split()))
        why = f"status {status}{': ' + answer[:300] if answer else ''}"
        if any(word in answer.casefold() for word in _INSPECTED):
            failed = _Failed(why)
            failed.inspected = True
            return failed
        if status in _WRONG or 300 <= status < 400:
            wrong = _WRONG.get(status, "sends its callers elsewhere")
            raise JudgeError(
                f"the judge at {self.settings.base_url} {wrong} ({why}): check --judge.base-url, --judge.model and "
                "the key in DASHSCOPE_API_KEY or OPENAI_API_KEY"
            )
        try:
            least = min(float(response.headers.get("Retry-After", 0)), 60.0)
        except ValueError:  # a date
            least = 0.0
        return _Failed(
            why,
            limited=status == 429,
            again=status in (408, 409, 425, 429) or status >= 500,
            least_wait=max(least, 0.0),
        )

    def _without_key(self, text: str) -> str:
        for shape in filter(None, (self._key, json.dumps(self._key)[1:-1])):
            text = text.replace(shape, "***")
        return text

    def _log(self, entry: Mapping[str, Any]) -> None:
        """Adds a line to judge.jsonl; nothing for an empty entry, but the file is there."""
        assert self.settings.log_dir is not None
        line = self._without_key(json.dumps(entry)) + "\n" if entry else ""
        with self._lock, (self.settings.log_dir / "judge.jsonl").open("a", encoding="utf-8") as file:
            file.write(line)
