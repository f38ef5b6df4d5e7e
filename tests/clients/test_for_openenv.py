"""Environments as OpenEnv servers: its own client plays whole episodes over a socket, with our rewards."""

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openenv")

import httpx
import uvicorn
from clients_cases import SETTINGS, Played, example, played
from openenv import GenericEnvClient

from agent_envs import registry
from agent_envs.core import SettingsError
from runners import serve_openenv
from runners.interop.for_openenv import app

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def wiki() -> Iterator[str]:
    """The address of a server with two sessions."""
    yield from served("wiki")


@pytest.fixture(scope="module")
def math() -> Iterator[str]:
    yield from served("math")


def served(env: str) -> Iterator[str]:
    made = app(partial(registry.from_settings, env, **SETTINGS[env]), "test", sessions=2)
    with serve_openenv.listening("127.0.0.1", 0) as there:
        server = uvicorn.Server(uvicorn.Config(made, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [there]})
        thread.start()
        yield f"http://127.0.0.1:{there.getsockname()[1]}"
        server.should_exit = True
        thread.join(timeout=30)
        assert not thread.is_alive()


def client(address: str) -> Any:
    return GenericEnvClient(base_url=address).sync()


def check_same(there: Any, episode: Played) -> None:
    begun = there.reset(task=episode.task, seed=0)
    assert (begun.observation["text"], begun.observation["instructions"]) == (episode.prompt, episode.system)
    assert begun.done is False and begun.observation["success"] is None
    for number, (turn, text, reward) in enumerate(zip(episode.turns, episode.texts, episode.rewards, strict=True), 1):
        result = there.step({"text": turn})
        assert (result.observation["text"], result.reward) == (text, reward)
        assert result.done is (number == len(episode.turns))
    assert result.observation["success"] is episode.success
    assert (there.state()["reward"], there.state()["step_count"]) == (episode.total, len(episode.turns))


@pytest.mark.parametrize("wrong", [False, True])
def test_the_client_plays_episodes_with_our_rewards(wiki: str, wrong: bool) -> None:
    with client(wiki) as there:
        for number in (0, 7):
            episode = played("wiki", number, wrong=wrong)
            check_same(there, episode)
            assert (episode.success, episode.total) == ((False, -0.125) if wrong else (True, 1.0))


def test_two_clients_play_at_once_and_a_third_is_refused(wiki: str) -> None:
    one, two = played("wiki", 1), played("wiki", 2)
    with client(wiki) as first, client(wiki) as second:
        first.reset(task=one.task)
        second.reset(task=two.task)
        for mine, there, turns in ((one, first, one.turns), (two, second, two.turns)):
            for turn in turns:
                result = there.step({"text": turn})
            assert result.observation["success"] and result.observation["task"] == mine.task
        with pytest.raises(Exception, match=r"[Cc]apacity"), client(wiki) as third:
            third.reset()


def test_a_message_of_thoughts_is_a_whole_episode(math: str) -> None:
    episode = played("math", 3)
    with client(math) as there:
        there.reset(split="test", index=3)
        result = there.step({"text": "".join(episode.turns)})
        assert (result.done, result.reward, result.observation["success"]) == (True, episode.total, True)
        there.reset(split="test", index=3)
        result = there.step({"text": episode.turns[0]})
        assert (result.done, result.observation["success"], result.observation["truncated"]) == (True, False, True)


def test_tasks_are_found_and_chosen_as_its_task_api_has_it(wiki: str) -> None:
    env = registry.from_settings("wiki", **SETTINGS["wiki"])
    with httpx.Client(base_url=wiki) as http:
        assert [split["name"] for split in http.get("/wiki/splits").json()] == ["train", "valid", "test"]
        counted = http.post("/wiki/num_tasks", json={"split": "test"}).json()
        assert counted == {"num_tasks": len(env.tasks("test"))}
    with client(wiki) as there:
        assert there.reset(split="train", index=5).observation["task"] == env.tasks("train")[5].id
        drawn = [there.reset(seed=4).observation["task"] for _ in range(2)]
        assert drawn[0] == drawn[1] and "-test-" in drawn[0]
        for wrong in ({"index": 10**6}, {"split": "tset"}, {"task": "nowhere"}):
            with pytest.raises(Exception, match=r"there is no task|no split|no task"):
                there.reset(**wrong)


def test_turns_that_cannot_be_played(wiki: str) -> None:
    with client(wiki) as there:
        with pytest.raises(Exception, match="no episode was begun"):
            there.step({"text": "x"})
        there.reset(task=played("wiki", 0).task)
        with pytest.raises(Exception, match="Invalid message"):
            there.step({"move": "x"})
        result = there.step({"text": "no action"})
        assert result.observation["invalid"] and not result.done and there.state()["step_count"] == 1


def test_the_documented_example_runs(wiki: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = example("OpenEnv")
    assert code.count("http://127.0.0.1:8000") == 1
    exec(compile(code.replace("http://127.0.0.1:8000", wiki), "docs/trainers.md", "exec"), {})
    said = capsys.readouterr().out
    assert said.startswith("Answer the question by reading the wiki.") and said.endswith(" 0.0 False\n")


@pytest.mark.runs
def test_the_command_serves_until_it_is_interrupted() -> None:
    command = [sys.executable, "runners/serve_openenv.py", "--env", "identity", "--port", "0"]
    # A shell's background jobs ignore Ctrl-C, and so would what they start.
    heeds = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heeds
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        found = re.fullmatch(r"identity at (http://127\.0\.0\.1:\d+) \(Ctrl-C ends it\)\n", line)
        assert found, process.stderr.read()
        with client(found[1]) as there:
            assert there.reset().observation["text"] and "-train-" in there.state()["task"]
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        assert process.stderr.read() == "error: interrupted\n"


def test_what_cannot_be_played_is_not_served() -> None:
    for env, settings, says in (
        ("gym", {"id": "Nope-v0"}, "Nope-v0 cannot be made"),
        ("wiki", {"corpus": "world", "source": "no.jsonl"}, "source"),
    ):
        with pytest.raises(SettingsError, match=says):
            app(partial(registry.from_settings, env, **settings), "test", sessions=1)
