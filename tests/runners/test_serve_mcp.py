"""An environment over MCP: the official client plays whole episodes with the rewards of our own programs."""

import ctypes
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

import anyio
from mcp import Client, StdioServerParameters

from agent_envs import registry
from agent_envs.actions import Grammar, Verb
from agent_envs.identity.env import IdentityEnv
from agent_envs.tools import as_call
from agent_envs.wiki.config import WikiConfig
from runners.command_line.errors import UserError
from runners.interop.mcp_calls import BEGIN, Calls

ROOT = Path(__file__).resolve().parent.parent.parent
SMALL = WikiConfig(train_worlds=2, valid_worlds=1, test_worlds=1)
FLAGS = ["--wiki.train-worlds", "2", "--wiki.valid-worlds", "1", "--wiki.test-worlds", "1"]


def server(*flags: str) -> StdioServerParameters:
    return StdioServerParameters(command=sys.executable, args=["runners/serve_mcp.py", *flags], cwd=ROOT)


async def played(task: str) -> tuple[list[str], list[dict[str, Any]], list[str]]:
    """The tools, the structured answers, and the texts of an expert's episode."""
    env = registry.make("wiki", SMALL)
    env.reset(options={"task": task})
    async with Client(server("--env", "wiki", *FLAGS)) as client:
        tools = (await client.list_tools()).tools
        schemas = [
            {"function": {"name": tool.name, "parameters": tool.input_schema}} for tool in tools if tool.name != BEGIN
        ]
        begun = await client.call_tool(BEGIN, {"task": task})
        told, texts = [begun.structured_content or {}], [begun.content[0].text]  # type: ignore[union-attr]
        while not told[-1]["over"]:
            turn = env.expert()
            call = as_call(schemas, env.grammar.parse(turn))
            answer = await client.call_tool(call["name"], call["arguments"])
            env.step(turn)
            told.append(answer.structured_content or {})
            texts.append(answer.content[0].text)  # type: ignore[union-attr]
        late = await client.call_tool("SUBMIT", {"answer": "x"})
        assert late.is_error and "the episode is over: call begin_episode" in late.content[0].text  # type: ignore[union-attr]
    return [tool.name for tool in tools], told, texts


@pytest.mark.runs
def test_the_official_client_plays_an_episode_with_our_rewards() -> None:
    env = registry.make("wiki", SMALL)
    task = env.tasks("test")[3].id
    names, told, texts = anyio.run(played, task)
    assert names == [BEGIN, *(verb.name for verb in env.grammar.verbs)]
    prompt, _ = env.reset(options={"task": task})
    assert texts[0] == prompt and told[0] == {"task": task, "over": False}
    for answer, text in zip(told[1:], texts[1:], strict=True):
        observation, reward, terminated, truncated, info = env.step(env.expert())
        assert text.startswith(observation) and answer["reward"] == reward
        assert (answer["over"], answer["success"], answer["invalid"]) == (
            terminated or truncated,
            info["success"],
            False,
        )
    assert told[-1]["success"] is True and texts[-1].endswith("The episode is over: success.")


@pytest.mark.runs
def test_the_standard_output_is_the_protocols_alone() -> None:
    ask = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "runners/serve_mcp.py", "--env", "identity"], cwd=ROOT, input=json.dumps(ask) + "\n",
        capture_output=True, text=True, timeout=120, env=dict(os.environ),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert "begin_episode first" in json.loads(line)["result"]["instructions"]


@pytest.mark.runs
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "to_a_thread",
    [False, pytest.param(True, marks=pytest.mark.skipif(sys.platform != "linux", reason="tgkill is Linux's"))],
)
def test_a_signal_ends_it_although_the_client_says_nothing(number: int, to_a_thread: bool) -> None:
    """One that another thread takes does not wake the main one, and one may come just before that one waits."""
    ask = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}}  # fmt: skip
    serving = subprocess.Popen(
        [sys.executable, "runners/serve_mcp.py", "--env", "identity"], cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert serving.stdin and serving.stdout and serving.stderr
        serving.stdin.write(json.dumps(ask) + "\n")
        serving.stdin.flush()
        assert serving.stdout.readline()
        if to_a_thread:
            last = max(int(task.name) for task in Path(f"/proc/{serving.pid}/task").iterdir())
            assert last != serving.pid and ctypes.CDLL(None).tgkill(serving.pid, last, number) == 0
        else:
            serving.send_signal(number)
        assert serving.wait(30) == 128 + number and serving.stderr.read() == "error: interrupted\n"
    finally:
        serving.kill()
        serving.communicate()


def test_what_cannot_be_done_is_refused_and_changes_nothing() -> None:
    calls = Calls(IdentityEnv(), "test", seed=0)
    call = calls.call
    assert call("SAY", {"word": "red"}).text == "no episode was begun: call begin_episode"
    for arguments in ({"task": 3}, {"other": "x"}, {"task": "nowhere"}):
        assert call(BEGIN, arguments).refused
    assert not call(BEGIN, {}).refused
    turn = calls.env.turn
    assert call("SING", {}).refused and calls.env.turn == turn
    invalid = call("SAY", {"a": "x", "b": "y"})
    assert not invalid.refused and invalid.episode["invalid"] and calls.env.turn == turn + 1
    same = [Calls(IdentityEnv(), "test", seed=5).call(BEGIN, {}) for _ in range(2)]
    assert same[0] == same[1]


def test_environments_that_cannot_be_served() -> None:
    with pytest.raises(UserError, match="math has no actions that could be tools"):
        Calls(registry.make("math"), "test", None)

    class Taken(IdentityEnv):
        grammar = Grammar(Verb(BEGIN, "word"))

    with pytest.raises(UserError, match="an action called begin_episode"):
        Calls(Taken(), "test", None)


def test_without_the_sdk_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from runners import serve_mcp

    monkeypatch.setattr(sys, "argv", ["turnwise serve-mcp", "--env", "identity"])
    monkeypatch.setitem(sys.modules, "runners.interop.for_mcp", None)
    with pytest.raises(UserError, match=r"pip install 'turnwise\[mcp\]'"):
        serve_mcp.main()
    assert Calls(IdentityEnv(), "test", 0).tools
