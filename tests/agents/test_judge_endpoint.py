"""The endpoint judge against a real HTTP server: every request ends, nothing is guessed, and the key goes nowhere."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from judge_cases import episode
from judge_server import Answer, Asked, Script, judge_server, judgments, praise

from agents.endpoint import line
from agents.endpoint.keys import is_loopback, key_for, key_name
from agents.judge import JudgeError, JudgeKind, JudgeSettings, Verdicts
from agents.judge.endpoint import EndpointJudge, wait_seconds

KEY = "sk-4f\"not'hing\\else"
TWO = episode(("look", "a box"), ("open", ""))


OPENED: list[EndpointJudge] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


def judge_at(url: str, waits: list[float] | None = None, key: str = KEY, **settings: Any) -> EndpointJudge:
    """A judge that notes its waits instead of waiting."""
    told = JudgeSettings(kind=JudgeKind.ENDPOINT, model="judge-1", base_url=url, **settings)
    noted = [] if waits is None else waits
    OPENED.append(EndpointJudge(told, {"TURNWISE_KEY_127_0_0_1": key} if key else {}, noted.append))
    return OPENED[-1]


def ask(script: Script, n: int = 1, **settings: Any) -> tuple[Verdicts, list[Asked], list[float]]:
    waits: list[float] = []
    with judge_server(script) as server:
        verdicts = judge_at(server.url, waits, **settings).label([TWO] * n, [1.0] * n)
        return verdicts, server.asked, waits


def first(answer: Answer, then: Script = praise, times: int = 1) -> Script:
    return lambda asked, before: answer if before < times else then(asked, before)


def test_a_question_and_its_answer() -> None:
    verdicts, asked, waits = ask(lambda *_: Answer(judgments("GOOD", "BAD")), price_prompt=2.0, price_completion=30.0)
    assert verdicts.labels == [(True, False)] and not waits
    (one,) = asked
    assert one.path == "/v1/chat/completions" and one.headers["Authorization"] == f"Bearer {KEY}"
    assert (one.body["model"], one.body["temperature"], one.body["max_tokens"]) == ("judge-1", 0, 8192)
    assert [message["role"] for message in one.body["messages"]] == ["system", "user"] and one.steps == 2
    assert verdicts.stats == {
        "calls": 1, "retries": 0, "failures": 0, "inspected": 0, "prompt_tokens": 100, "completion_tokens": 10,
        "cost": pytest.approx((100 * 2 + 10 * 30) / 1e6),
    }  # fmt: skip


def test_answers_are_given_to_those_who_asked() -> None:
    """However late each answer comes, and up to ``concurrent`` at once."""
    lengths = [3, 1, 2, 5, 4, 1, 2, 3]
    played = [episode(*[("act", "seen")] * n, sample=i) for i, n in enumerate(lengths)]
    with judge_server(lambda asked, _: Answer(judgments(*["BAD"] * asked.steps), seconds=asked.steps / 50)) as server:
        assert judge_at(server.url, concurrent=3).label(played, [0.0] * 8).labels == [(False,) * n for n in lengths]
        assert 1 < server.most <= 3


@pytest.mark.parametrize("first_number", [0, 1])
def test_both_numberings(first_number: int) -> None:
    assert ask(lambda *_: Answer(judgments("GOOD", "BAD", first=first_number)))[0].labels == [(True, False)]


@pytest.mark.parametrize("reply", ["", "I would rather not.", "Step 0 Judgment: GOOD", "GOOD BAD"])
def test_an_unreadable_reply_is_no_label_and_not_asked_for_again(reply: str) -> None:
    verdicts, asked, _ = ask(lambda *_: Answer(reply))
    assert verdicts.labels == [(None, None)] and len(asked) == 1 and verdicts.stats["failures"] == 0


@pytest.mark.parametrize(
    "answer",
    [
        Answer(status=500),
        Answer(status=503, body=b"busy"),
        Answer(status=429),
        Answer(status=408),
        Answer(body=b"{"),
        Answer(body=b"\xff\xfe"),
        Answer(body=b"[]"),
        Answer(body=b'{"choices": []}'),
        Answer(body=b'{"choices": [{"message": {"content": 3}}]}'),
        Answer(body=b'{"choices": [{"message": {"content": "x"}}], "usage": [1]}'),
        Answer(body=b"[" * 100_000),
    ],
    ids=lambda answer: f"{answer.status}-{answer.body[:12]!r}",
)
def test_what_may_pass_is_asked_again(answer: Answer) -> None:
    verdicts, asked, waits = ask(first(answer, times=2))
    assert verdicts.labels == [(True, True)]
    assert len(asked) == 3 and len(waits) == verdicts.stats["retries"] == 2 and verdicts.stats["calls"] == 3
    assert waits[0] < waits[1]


def test_a_late_answer_is_asked_for_again() -> None:
    """On a busy machine a good answer may be late too, so no number of calls is asserted but the least."""
    verdicts, asked, waits = ask(first(Answer("late", seconds=2.0), times=2), timeout=0.5)
    assert verdicts.labels == [(True, True)]
    assert len(asked) == verdicts.stats["calls"] == verdicts.stats["retries"] + 1 == len(waits) + 1 >= 3


def test_how_long_is_waited() -> None:
    assert [wait_seconds(a, limited=False, chance=0.7) for a in (0, 1, 6, 7, 199)] == [2, 4, 14, 15, 15]
    assert [wait_seconds(a, limited=True, chance=0) for a in (0, 1, 2, 100, 10**6)] == [1, 1.5, 2.25, 60, 60]
    assert wait_seconds(100, limited=True, chance=1.0) == 75
    for told, least in (("7", 7.0), ("900", 60.0), ("Wed, 21 Oct 2026 07:28:00 GMT", 1.0), ("nan", 1.0), ("-5", 1.0)):
        _, _, waits = ask(first(Answer(status=429, headers={"Retry-After": told})))
        assert least <= waits[0] <= max(least, 1.25), told


def test_retries_are_bounded_and_so_is_patience() -> None:
    def broken(asked: Asked, before: int) -> Answer:
        return praise(asked, before) if asked.steps == 2 else Answer(status=500, body=b"out of order")

    other = episode(("look", ""), name="other")
    for bound, tries in (({"api_max_retries": 3}, 4), ({"api_max_retries": 0}, 1), ({"patience": 1.0}, 1)):
        with judge_server(broken) as server:
            verdicts = judge_at(server.url, **bound).label([TWO, other], [1.0, 1.0])
            assert verdicts.labels == [(True, True), (None,)] and verdicts.stats["failures"] == 1
            assert sum(asked.steps == 1 for asked in server.asked) == tries, "a first wait of 2 s is too long for 1 s"


def test_a_judge_that_answers_nobody_stops_the_run() -> None:
    with pytest.raises(
        JudgeError, match="answered none of 2 requests; the last one failed so: status 500: out of order"
    ):
        ask(lambda *_: Answer(status=500, body=b"out of order"), n=2, api_max_retries=1)


@pytest.mark.parametrize("status", [401, 403, 404, 402, 307])
def test_what_can_never_pass_stops_the_run_at_once(status: int) -> None:
    with judge_server(lambda *_: Answer(status=status, headers={"Location": "/elsewhere"})) as server:
        judge = judge_at(server.url)
        for use in (judge.check, lambda: judge.label([TWO], [1.0])):
            with pytest.raises(JudgeError, match=f"status {status}") as raised:
                use()
            assert "\n" not in str(raised.value)
        assert len(server.asked) == 2


def test_a_request_that_is_refused_is_not_repeated() -> None:
    script = lambda asked, n: Answer(status=400, body=b"too long") if asked.steps == 2 else praise(asked, n)  # noqa: E731
    with judge_server(script) as server:
        verdicts = judge_at(server.url).label([TWO, episode(("a", ""))], [1.0, 1.0])
    assert verdicts.labels == [(None, None), (True,)]
    assert (verdicts.stats["failures"], verdicts.stats["retries"]) == (1, 0)


def test_content_inspection_is_tried_twice() -> None:
    refused = Answer(status=400, body=b'{"error": {"code": "data_inspection_failed"}}')
    verdicts, asked, _ = ask(first(refused))
    assert verdicts.labels == [(True, True)] and len(asked) == 2
    verdicts, asked, _ = ask(lambda *_: refused)
    assert verdicts.labels == [(None, None)] and len(asked) == 2
    assert (verdicts.stats["inspected"], verdicts.stats["failures"]) == (1, 0), "the endpoint is there, all the same"


def test_a_body_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "BODY_MAX", 1000)
    assert ask(first(Answer("x" * 2000)))[0].labels == [(True, True)]


def test_it_is_asked_once_before_anything_else() -> None:
    with judge_server() as server:
        judge_at(server.url).check()
        assert len(server.asked) == 1 and server.asked[0].body["max_tokens"] == 16 and not server.questions
    with pytest.raises(JudgeError, match=r"the judge at http://127.0.0.1:\d+/v1 cannot be reached \(ConnectError"):
        judge_at(server.url).check()
    with judge_server(lambda *_: Answer(status=429)) as server:
        judge_at(server.url).check()


def test_an_interrupt_ends_it_at_once() -> None:
    """What is on its way is left behind; nothing new is begun."""

    class Stop(BaseException):
        pass

    stopped, before = [], threading.active_count()
    with judge_server(lambda *_: Answer("x", seconds=0.5)) as server:
        judge = judge_at(server.url, concurrent=2)
        join = threading.Thread.join

        def interrupted(thread: threading.Thread, timeout: float | None = None) -> None:
            if threading.current_thread() is threading.main_thread() and timeout == 0.1:
                raise Stop
            join(thread, timeout)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threading.Thread, "join", interrupted)
            with pytest.raises(Stop):
                judge.label([episode(("a", ""), sample=i) for i in range(20)], [1.0] * 20)
        judge.close()
        stopped = list(server.asked)
    assert len(stopped) <= 2 and all(t.daemon for t in threading.enumerate()[before:])


# -- the key -------------------------------------------------------------------------------------------------------


def test_whose_key_is_sent_where() -> None:
    every = {"DASHSCOPE_API_KEY": "ds", "OPENAI_API_KEY": " oa\n", "TURNWISE_KEY_API_EXAMPLE_COM": "ex"}
    assert key_for("dashscope.aliyuncs.com", every) == "ds" and key_for("api.openai.com", every) == "oa"
    assert key_for("api.example.com", every) == "ex"
    for other in (
        "127.0.0.1",
        "localhost",
        "example.com",
        "api.example.com.evil.org",
        "evil-openai.com",
        "openai.com.x",
    ):
        assert key_for(other, every) == "", other
    assert key_name("my-host.local") == "TURNWISE_KEY_MY_HOST_LOCAL"
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "localhost", "::1", "[::1]")))
    assert not any(map(is_loopback, ("10.0.0.1", "localhost.evil.org", "example.com", "0.0.0.0")))
    with pytest.raises(JudgeError, match="needs a key: export DASHSCOPE_API_KEY="):
        EndpointJudge(JudgeSettings(kind=JudgeKind.ENDPOINT, model="m"), {})
    with judge_server() as server:
        assert judge_at(server.url, key="").label([TWO], [1.0]).labels == [(True, True)]
        assert "Authorization" not in server.asked[0].headers
    with pytest.raises(JudgeError, match="characters that no key has") as raised:
        judge_at("http://127.0.0.1:1/v1", key="one\ntwo")
    assert "one" not in str(raised.value)


def test_a_key_never_goes_over_plain_http() -> None:
    told = JudgeSettings(kind=JudgeKind.ENDPOINT, model="m", base_url="http://judge.example.com/v1")
    with pytest.raises(JudgeError, match=r"over plain http.*unset TURNWISE_KEY_JUDGE_EXAMPLE_COM"):
        EndpointJudge(told, {"TURNWISE_KEY_JUDGE_EXAMPLE_COM": "k"})
    OPENED.append(EndpointJudge(told, {"OPENAI_API_KEY": "k"}))  # no key of its own, so that none is sent


def tell_tale(asked: Asked, before: int) -> Answer:
    """A server that repeats the key wherever it can."""
    key = asked.headers["Authorization"]
    if before == 0 or asked.steps == 1:
        return Answer(status=500, body=f"your key was {key}".encode(), headers={"X-Key": key})
    return Answer(f"{key}\n{judgments('GOOD', 'BAD')}")


def leaks(run: Callable[[EndpointJudge], Any], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Where the key is to be found after ``run``."""
    caplog.set_level(0)
    said: dict[str, str] = {}
    with judge_server(tell_tale) as server:
        judge = judge_at(server.url, log_dir=tmp_path / "log", api_max_retries=1)
        try:
            said["result"] = repr(run(judge))
        except JudgeError as error:
            said["error"] = f"{error!r} {error.__cause__!r} {error.__context__!r}"
        said["judge"] = repr(vars(judge)["settings"])
    said["log"] = caplog.text
    said |= {path.name: path.read_text() for path in (tmp_path / "log").iterdir()}
    shapes = (KEY, json.dumps(KEY)[1:-1], repr(KEY)[1:-1])
    return [name for name, text in said.items() if any(shape in text for shape in shapes)]


RUNS: dict[str, Callable[[EndpointJudge], Any]] = {
    "check": lambda judge: judge.check(),
    "labels": lambda judge: judge.label([TWO, episode(("a", ""))], [1.0, 1.0]),
    "nobody": lambda judge: judge.label([episode(("a", ""))], [1.0]),
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_the_key_is_nowhere_but_in_the_request(
    run: Callable[[EndpointJudge], Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "log").mkdir()
    assert leaks(run, tmp_path, caplog) == []


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_without_its_guards_the_key_would_be_found(
    run: Callable[[EndpointJudge], Any], tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    """The control of the test above."""
    (tmp_path / "log").mkdir()
    monkeypatch.setattr(EndpointJudge, "_without_key", lambda self, text: text)
    assert leaks(run, tmp_path, caplog) != []


def test_the_log_of_requests(tmp_path: Path) -> None:
    script = lambda asked, n: Answer(status=500) if asked.steps and not n else praise(asked, n)  # noqa: E731
    with judge_server(script) as server:
        judge = judge_at(server.url, log_dir=tmp_path / "a" / "b")
        judge.check()
        judge.label([TWO], [1.0])
    (line,) = (tmp_path / "a" / "b" / "judge.jsonl").read_text().splitlines()
    entry = json.loads(line)
    assert entry["episode"] == ["t", 0, 0] and entry["model"] == "judge-1" and entry["tries"] == 2
    assert entry["labels"] == [True, True] and entry["failure"] is None
    assert "EVAL-STEP 1" in entry["messages"][1]["content"] and "Step 1 Judgment: GOOD" in entry["reply"]
    (tmp_path / "file").write_text("")
    with judge_server() as server, pytest.raises(JudgeError, match="give another with --judge"):
        judge_at(server.url, log_dir=tmp_path / "file" / "x").check()
