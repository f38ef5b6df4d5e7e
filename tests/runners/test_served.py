"""``turnwise evaluate --endpoint``: tables as for a run; what ended is kept, and the same command does the rest."""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from judge_server import Answer, Asked, Server, judge_server
from served_cases import KEY, call, completion, say, say_by_tool

from agent_envs.core import SettingsError
from agents.endpoint.client import Client
from runners import evaluate, train
from runners.command_line.errors import UserError
from runners.run_folder.folder import hold
from runners.served.kept import EPISODES, Kept
from runners.served.play import Play
from runners.served.program import RESULT
from runners.served.settings import fingerprint

FLAGS = ("--tasks", "3", "--samples", "2", "--envs.processes", "1", "--served.max-retries", "0")


CORRIDOR = ("--corridor.doors", "2", "--corridor.pulls", "2", "--corridor.max-turns", "3")


@dataclass
class Bench:
    """A server whose answers a test may change, and the command that asks it."""

    server: Server
    out: Path
    patch: pytest.MonkeyPatch
    script: Callable[[Asked, int], Answer] = say

    def __call__(self, *argv: str, env: str = "identity", out: Path | None = None) -> dict[str, Any]:
        place = out or self.out
        flags = ["--endpoint", self.server.url, "--model", "m", "--env", env, "--out", str(place), *FLAGS, *argv]
        self.server.asked.clear()
        self.patch.setattr(sys, "argv", ["evaluate.py", *flags])
        evaluate.main()
        result: dict[str, Any] = json.loads((place / RESULT).read_text())
        return result

    @property
    def played(self) -> int:
        """Episodes that were begun by the last command."""
        return sum(len(asked.body["messages"]) == 2 for asked in self.server.asked)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.out / EPISODES).read_text().splitlines()]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv("TURNWISE_KEY_127_0_0_1", KEY)
    monkeypatch.setenv("COLUMNS", "200")
    made: list[Bench] = []
    with judge_server(lambda asked, before: made[0].script(asked, before)) as server:
        made.append(Bench(server, tmp_path / "out", monkeypatch))
        yield made[0]


def test_the_same_tables_as_for_a_run(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    prices = ("--served.price-prompt", "1000", "--served.price-completion", "2000")
    result = bench("--env", "corridor", *CORRIDOR, *prices)
    said = capsys.readouterr().out
    model = result["envs"]["identity"]["model"]
    assert model["greedy"]["success"]["mean"] == 1 and 0 < model["sampled"]["success"]["mean"] < 1
    assert model["sampled"]["tasks"] == 3 and model["sampled"]["samples"] == 2 and "2" in model["sampled"]["pass_at_k"]
    assert model["greedy"]["turns"]["mean"] == 3 and model["greedy"]["sampled_tokens"]["mean"] == 9
    assert model["greedy"]["endpoint"] == {
        "requests": 9, "prompt_tokens": 90, "completion_tokens": 27, "cost": pytest.approx(0.144), "inspected": 0,
        "context": 0,
    }  # fmt: skip
    assert result["envs"]["corridor"]["model"]["greedy"]["success"]["mean"] == 0
    assert "greedy: 9 requests, 90 prompt tokens, 27 completion tokens, cost 0.1440" in said and "pass@2" in said
    assert bench.played == 2 * 3 * 3 and len(bench.lines) == 18


def test_thoughts_have_kinds(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.script = lambda asked, n: completion("I guess it is 3.\n\nIt is \\boxed{3}")
    result = bench(env="math")
    assert result["envs"]["math"]["kinds"]["other"]["turns"] >= 1 and "kinds of thoughts" in capsys.readouterr().out


# -- what is kept --------------------------------------------------------------------------------------------------


def dies_after(requests: int, how: Answer) -> Callable[[Asked, int], Answer]:
    left = iter(range(requests))
    return lambda asked, before: how if next(left, None) is None else say(asked)


@pytest.mark.runs
@pytest.mark.parametrize(
    "how",
    [
        Answer(status=500, body=b"out of order"),
        Answer(body=b"<html>rubbish \x1b]0;owned\x07"),
        Answer(body=b"x" * (9 << 20)),
        Answer("late", seconds=3.0),
    ],
    ids=["dies", "rubbish", "oversized", "stalls"],
)
def test_a_server_that_fails_loses_no_finished_episode(bench: Bench, how: Answer) -> None:
    # Only who stalls is to run into it.
    one_at_a_time = ("--served.concurrent", "1", "--served.timeout", "1.5" if how.seconds else "60")
    whole = bench(*one_at_a_time, out=bench.out.with_name("whole"))
    assert bench.played == 9
    bench.script = dies_after(1 + 4 * 3 + 1, how)
    with pytest.raises(UserError, match=r"\(.*\); 4 of 9 episodes are kept in .*: the same command goes on") as raised:
        bench(*one_at_a_time)
    assert str(raised.value).isprintable() and len(bench.lines) == 4
    bench.script = say
    again = bench(*one_at_a_time)
    assert bench.played == 5, "nothing that ended is played again"
    assert again["envs"] == whole["envs"]


@pytest.mark.runs
def test_without_its_record_everything_would_be_played_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the test above."""
    with monkeypatch.context() as patch:
        patch.setattr(Kept, "add", lambda *_: None)
        bench()
    bench()
    assert bench.played == 9


def test_a_server_that_is_gone(bench: Bench) -> None:
    bench()
    with judge_server() as other:
        gone = other.url
    bench.server.url, there = gone, bench.server.url
    with pytest.raises(UserError, match=r"cannot be reached \(ConnectError.*0 of 9 episodes are kept"):
        bench(out=bench.out.with_name("other"))
    bench.server.url = there
    assert bench()["envs"] and not bench.server.asked, "what is all there needs no server"


@pytest.mark.runs
def test_an_interrupt_keeps_what_ended(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    added, add = [], Kept.add

    def interrupted(self: Kept, *what: Any) -> None:
        add(self, *what)
        added.append(what)

    def watch(self: Play) -> None:
        if len(added) >= 3:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kept, "add", interrupted)
        patch.setattr(Play, "_check_progress", watch)
        bench.script = lambda asked, n: Answer(**{**vars(say(asked)), "seconds": 0.1})
        with pytest.raises(KeyboardInterrupt):
            bench("--served.concurrent", "2")
    assert "episodes are kept in" in capsys.readouterr().out and 3 <= len(bench.lines) < 9
    there = len(bench.lines)
    bench.script = say
    bench()
    assert bench.played == 9 - there


def test_what_is_measured_decides_what_is_kept(bench: Bench) -> None:
    bench()
    bench("--served.concurrent", "3", "--served.timeout", "9", "--samples", "4")
    assert bench.played == 6, "more samples go on with the others"
    for argv, says in (
        (("--temperature", "0.5"), "identity.temperature 1.0 -> 0.5"),
        (("--served.tools",), "identity.served.tools False -> True"),
        (("--identity.length", "4"), r"identity.identity.length 3 -> 4"),
        (("--react.max-tokens", "99"), "identity.react.max_tokens 2048 -> 99"),
    ):
        with pytest.raises(UserError, match=f"holds episodes of other settings .*{says}"):
            bench(*argv)
    assert not bench.server.asked
    bench(*CORRIDOR, env="corridor")
    assert {line["env"] for line in bench.lines} == {"identity", "corridor"}, "another environment may be added"


def test_the_record_is_read_strictly(bench: Bench) -> None:
    bench()
    record = bench.out / EPISODES
    sound = record.read_bytes()
    record.write_bytes(sound[:-40])
    bench()
    assert bench.played == 1 and len(bench.lines) == 9, "the end of a killed process cut a line"
    first = sound.splitlines()[0]
    entry = json.loads(first)
    for wrong in (
        b"{}", b"nonsense", b"[" * 100_000, b"null", b'"x"',
        json.dumps(entry | {"settings": fingerprint({})}).encode(),
        json.dumps(entry | {"turns": 3}).encode(),
        json.dumps(entry | {"metrics": {"x": "y"}}).encode(),
        json.dumps(entry | {"metrics": []}).encode(),
        json.dumps(entry | {"requests": float("inf")}).encode(),
    ):  # fmt: skip
        record.write_bytes(wrong + b"\n" + sound)
        with pytest.raises(UserError, match=r"is damaged in line 1: take that line away") as raised:
            bench()
        assert "\n" not in str(raised.value)
    record.write_bytes(sound)
    held = hold(bench.out)
    with pytest.raises(UserError, match="is being used by another process"):
        bench()
    held.close()
    other = bench.out.with_name("other")
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="is not empty and holds no episodes"):
        bench(out=other)
    (other / "notes.txt").rename(other / "settings.json")
    with pytest.raises(UserError, match="is not empty and holds no episodes"):
        bench(out=other)
    assert (other / "settings.json").read_text() == "mine"


def test_an_environment_that_breaks_is_left_out_and_tried_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from agent_envs import registry

    monkeypatch.setitem(registry.ENVS, "faulty", "faulty_env:FaultyEnv")
    argv = ("--split", "train", "--faulty.tasks", "1", "--tasks", "2", "--faults.retries", "1", "--samples", "1")
    result = bench(*argv, env="faulty")
    model = result["envs"]["faulty"]["model"]
    assert model["greedy"]["faults"] == model["sampled"]["faults"] == 1 and model["greedy"]["success"]["mean"] == 1
    assert len(bench.lines) == 2
    bench(*argv, env="faulty")
    assert bench.played == 4, "two attempts at each of what broke"


def test_a_full_disk_leaves_no_half_line(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = iter(range(100))

    def full(file: int) -> None:
        if next(calls) >= 2:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("runners.served.kept.os.fsync", full)
        with pytest.raises(UserError, match=r"cannot write .*No space left on device; 2 of 9 episodes are kept"):
            bench("--served.concurrent", "1")
    assert len(bench.lines) == 2
    bench()
    assert bench.played == 7


# -- the key -------------------------------------------------------------------------------------------------------


def tell_tale(asked: Asked, before: int) -> Answer:
    """A server that repeats the key wherever it can."""
    key = asked.headers.get("Authorization", "")
    if asked.body["max_tokens"] == 16:
        return completion(key)
    if len(asked.body["messages"]) > 4 and asked.body["temperature"]:
        return Answer(status=400, body=f"your key was {key}".encode(), headers={"X-Key": key})
    answer = say_by_tool(asked)
    text = json.loads(answer.body)
    text["choices"][0]["message"] |= {
        "content": f"thinking of {key}", "tool_calls": [call("SAY", json.dumps({"word": key}))],
    }  # fmt: skip
    return Answer(body=json.dumps(text).encode())


def leaks(bench: Bench, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Where the key is to be found after a command."""
    caplog.set_level(0)
    bench.script = tell_tale
    with pytest.raises(UserError, match="refuses a request") as raised:
        bench("--served.tools")
    error = raised.value
    said = {"error": f"{error!r} {error.__cause__!r} {error.__context__!r}", "log": caplog.text}
    said |= {"out": "".join(capsys.readouterr())}
    said |= {path.name: path.read_text() for path in bench.out.iterdir()}
    said |= {"messages": json.dumps([asked.body for asked in bench.server.asked])}
    shapes = (KEY, json.dumps(KEY)[1:-1], repr(KEY)[1:-1], json.dumps(json.dumps(KEY)[1:-1])[1:-1])
    return [name for name, text in said.items() if any(shape in text for shape in shapes)]


def test_the_key_is_nowhere_but_in_the_request(
    bench: Bench, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    assert leaks(bench, caplog, capsys) == []


def test_without_its_guard_the_key_would_be_found(
    bench: Bench,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control of the test above."""
    monkeypatch.setattr(Client, "_without_key", lambda self, text: text)
    assert {"error", "messages"} <= set(leaks(bench, caplog, capsys))


# -- flags ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--device", "cpu"), "--device has no effect on a served model"),
        (("--dtype=float16",), "--dtype has no effect on a served model"),
        (("--agent", "tot"), "--agent has no effect on a served model"),
        (("--slots", "3"), "--slots has no effect on a served model"),
        (("--chat.tool-role", "user"), r"unknown flag --chat\.tool-role"),
        (("--react.oracle",), r"--react\.oracle has no effect on a served model"),
        (("--env", "math", "--served.tools"), r"--served\.tools does not work with math"),
        (("--served.prefill",), r"--served\.prefill has no effect"),
        (("--served.rate", "-1"), r"--served\.rate must be at least 0"),
        (("--served.body", "[]"), r"--served\.body must be a JSON object"),
        (("--engine", "hf"), "--engine cannot be 'hf'"),
        (("--endpoint", "https://user:secret@host/v1"), "--endpoint must hold no user"),
        (("--endpoint", "http://host/v1?key=secret"), "--endpoint must hold no user"),
        (("--endpoint", "host"), "--endpoint must be an address"),
        (("--env", "nowhere"), "nowhere"),
    ],
)
def test_what_has_no_sense_is_refused_before_anything_is_asked(bench: Bench, argv: Any, says: str) -> None:
    with pytest.raises((UserError, SettingsError), match=says) as raised:
        bench(*argv)
    assert "\n" not in str(raised.value) and "secret" not in str(raised.value) and not bench.server.asked


def test_where_an_endpoint_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for argv, says in (
        (("--engine", "openai"), "--engine openai needs the address of a server"),
        (("--endpoint", "http://127.0.0.1:1/v1"), "--endpoint needs the name of a model there"),
        (("--env", "wiki", "--env", "wiki"), "--env names wiki twice"),
    ):
        monkeypatch.setattr(sys, "argv", ["evaluate.py", *argv])
        with pytest.raises(UserError, match=says):
            evaluate.main()
    monkeypatch.setattr(sys, "argv", ["train.py", "--engine", "openai"])
    with pytest.raises(UserError, match=r"--engine openai only evaluates \(turnwise evaluate --endpoint URL"):
        train.main()


def test_without_out_the_same_settings_lead_to_the_same_folder(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for argv, played in (
        (("--tasks", "1"), 3),
        (("--tasks", "1", "--served.concurrent", "2"), 0),
        (("--seed", "1"), 9),
    ):
        flags = ["--endpoint", bench.server.url, "--model", "../a b", "--env", "identity", *FLAGS, *argv]
        bench.server.asked.clear()
        monkeypatch.setattr(sys, "argv", ["evaluate.py", *flags])
        evaluate.main()
        assert bench.played == played
    assert len(list((tmp_path / "runs").iterdir())) == 2
    assert all(path.name.startswith("served-a-b-") for path in (tmp_path / "runs").iterdir())
