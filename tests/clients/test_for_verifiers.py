"""Environments for verifiers: its own agent plays whole episodes against an endpoint on loopback, with our rewards."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verifiers")

import verifiers.v1 as vf
from clients_cases import SETTINGS, Played, example, played

from agent_envs.core import SettingsError
from runners.interop.for_verifiers import load_environment

ROOT = Path(__file__).resolve().parent.parent.parent


class Endpoint(ThreadingHTTPServer):
    """An OpenAI-compatible endpoint that says, for a prompt, the turns of an episode one after the other."""

    def __init__(self, episodes: Sequence[Played], *, whole: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.says = {one.prompt: ["".join(one.turns)] if whole else list(one.turns) for one in episodes}
        self.asked: list[Mapping[str, Any]] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(asked)
        said = sum(message["role"] == "assistant" for message in asked["messages"])
        turns = self.server.says.get(next(m["content"] for m in asked["messages"] if m["role"] == "user"))
        if turns is None:
            return self.send_error(400, "an unknown task")
        message = {"role": "assistant", "content": turns[said]}
        answer = json.dumps({
            "id": "1", "object": "chat.completion", "created": 0, "model": asked["model"],
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }).encode()  # fmt: skip
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def endpoint(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Makes endpoints, which end with the test."""
    made: list[Endpoint] = []

    def make(episodes: Sequence[Played], **how: Any) -> Endpoint:
        made.append(Endpoint(episodes, **how))
        threading.Thread(target=made[-1].serve_forever, daemon=True).start()
        return made[-1]

    yield make
    for one in made:
        one.shutdown()
        one.server_close()


def play(env: Any, tasks: Sequence[Any], address: str, **agent: Any) -> list[Any]:
    """The episodes that verifiers plays, all at once."""
    client = vf.EvalClientConfig(base_url=address, api_key_var="NO_KEY_IS_NEEDED")
    context = vf.ModelContext(model="expert", client=client)

    async def run() -> list[Any]:
        async with env.serving():
            return await asyncio.gather(*(env.run_episode(task, context) for task in tasks))

    return asyncio.run(run())


@pytest.mark.parametrize("wrong", [False, True])
def test_the_agent_plays_episodes_with_our_rewards(endpoint: Any, wrong: bool) -> None:
    numbers = (0, 1, 2, 7)
    expected = [played("wiki", number, wrong=wrong, seed=number) for number in numbers]
    server = endpoint(expected)
    env = load_environment("wiki", "test", **SETTINGS["wiki"])
    tasks = list(env.taskset.take(8))
    for episode, own in zip(play(env, [tasks[i] for i in numbers], server.address), expected, strict=True):
        assert episode.ok, episode.errors
        (trace,) = episode.traces
        assert episode.task.data.id == own.task
        assert {name: reward.score for name, reward in trace.rewards.items()} == {"reward": own.total}
        assert trace.metrics == {"success": own.success, "turns": len(own.turns), "invalid": wrong}
        assert own.total == (-0.125 if wrong else 1.0)
    longest = max((asked["messages"] for asked in server.asked), key=len)
    own = next(one for one in expected if one.prompt == longest[1]["content"])
    assert longest[0] == {"role": "system", "content": own.system}
    heard = [message["content"] for message in longest[3:] if message["role"] == "user"]
    assert heard == list(own.texts[:-1]), "observations are the next messages"


def test_a_message_of_thoughts_is_a_whole_episode(endpoint: Any) -> None:
    expected = [played("math", number) for number in range(2)]
    env = load_environment("math", "test", **SETTINGS["math"])
    server = endpoint(expected, whole=True)
    episodes = play(env, list(env.taskset.take(2)), server.address)
    assert [one.traces[0].rewards["reward"].score for one in episodes] == [one.total for one in expected] == [1.0, 1.0]
    assert [one.traces[0].num_turns for one in episodes] == [1, 1]
    assert episodes[0].traces[0].metrics["turns"] == len(expected[0].turns) > 1


def test_an_endpoint_that_fails_is_an_error_and_no_reward(endpoint: Any) -> None:
    env = load_environment("wiki", "test", **SETTINGS["wiki"])
    server = endpoint([played("wiki", 1)])  # knows nothing of task 0
    (episode,) = play(env, list(env.taskset.take(1)), server.address)
    assert not episode.ok


def test_the_documented_example_runs(endpoint: Any, capsys: pytest.CaptureFixture[str]) -> None:
    own = [played("puzzle", number, seed=number) for number in range(2)]
    code = example("verifiers").replace('"wiki"', '"puzzle"')
    assert code.count("http://127.0.0.1:8000/v1") == 1
    code = code.replace("http://127.0.0.1:8000/v1", endpoint(own).address)
    exec(compile(code, "docs/trainers.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == [f"{one.task} {one.total}" for one in own]


@pytest.mark.runs
def test_its_own_program_finds_the_taskset(endpoint: Any, tmp_path: Path) -> None:
    server = endpoint([played("puzzle", number, seed=number) for number in range(2)])
    words = (
        "turnwise-verifiers --env.taskset.env puzzle --env.taskset.split test -m expert -n 2 --no-push --no-rich "
        f"--client.base-url {server.address} --client.api-key-var NO_KEY_IS_NEEDED --run.dir played"
    )
    done = subprocess.run(
        [str(Path(sys.executable).parent / "vf-eval"), *words.split(), "-o", str(tmp_path)], cwd=tmp_path,
        capture_output=True, text=True, timeout=300, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    lines = (tmp_path / "played" / "traces.jsonl").read_text().splitlines()
    assert len(lines) == 2 and all('"score":1.0' in line.replace(" ", "") for line in lines)


def test_what_cannot_be_made_is_refused_at_once() -> None:
    for wrong, says in (({"env": "wikki"}, "did you mean wiki"), ({"env": "wiki", "split": "tset"}, "no split 'tset'"),
                        ({"env": "wiki", "hops": 3}, "unknown setting 'hops'")):  # fmt: skip
        with pytest.raises(SettingsError, match=says):
            load_environment(**wrong)
