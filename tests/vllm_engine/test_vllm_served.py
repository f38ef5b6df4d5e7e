"""``turnwise evaluate --endpoint`` on vLLM's own server agrees with the evaluation in this process: text actions, tool
calls, thoughts; and a server that is killed loses nothing that was finished."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from server_cases import KEY, VLLMServer, in_process, serving, tiny
from vllm_cases import marks

from agent_envs import registry
from agents.rollout.settings import ReActSettings
from agents.tree.episode import Job
from runners import evaluate
from runners.command_line.errors import UserError
from runners.evaluation.measure import PlayedTasks
from runners.evaluation.tasks import pick_tasks
from runners.served.kept import EPISODES, Kept, restored
from runners.statistics.intervals import Interval, bootstrap_gain

pytestmark = [*marks, pytest.mark.usefixtures("own_cache")]
REACT = ReActSettings(max_action_tokens=200, max_tokens=400)
"""A message of thoughts is not cut by the length of one."""
TASKS, SAMPLES = 25, 8
Evaluated = Callable[..., dict[str, PlayedTasks]]


@pytest.fixture
def evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Evaluated:
    monkeypatch.setenv("TURNWISE_KEY_127_0_0_1", KEY)

    def run(server: VLLMServer, env: str, *argv: str, samples: int = SAMPLES, name: str = "served") -> Any:
        out, tasks = tmp_path / name, TASKS
        flags = ["--endpoint", server.url, "--model", "tiny", "--env", env, "--out", str(out), "--envs.processes", "1"]
        flags += ["--tasks", str(tasks), "--samples", str(samples), "--served.concurrent", "16"]
        flags += ["--react.max-action-tokens", str(REACT.max_action_tokens), "--react.max-tokens", "400", *argv]
        monkeypatch.setattr(sys, "argv", ["evaluate.py", *flags])
        evaluate.main()
        assert all(KEY not in path.read_text() for path in out.iterdir())
        return played(out, env, tasks, samples)

    return run


def played(out: Path, env: str, tasks: int, samples: int) -> dict[str, PlayedTasks]:
    """What the record holds, in the order of the tasks."""
    entries = [json.loads(line) for line in (out / EPISODES).read_text().splitlines()]
    kept = {(entry["mode"], entry["task"], entry["sample"]): entry for entry in entries}
    picked = pick_tasks(registry.make(env), "test", tasks)
    return {
        mode: PlayedTasks(tuple(restored(kept[mode, t.id, k], Job(t, k)) for t in picked for k in range(n)), n)
        for mode, n in (("sampled", samples), ("greedy", 1))
    }


def difference(one: PlayedTasks, other: PlayedTasks) -> Interval:
    """Of the successes of paired tasks, with its 95 % interval."""
    found = bootstrap_gain(one.successes(), other.successes())
    print(f"\nsuccess {one.success()} in this process, {other.success()} served, difference {found}")
    return found


def texts(result: PlayedTasks) -> list[list[str]]:
    return [[text for text, _ in episode.texts] for episode in result.episodes]


def test_text_actions_and_a_server_that_is_killed(
    evaluated: Evaluated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = registry.make("identity")
    model = tiny(env, flaw=0.3, demonstrations=300, steps=150)
    here = in_process("identity", model, REACT, pick_tasks(env, "test", TASKS), SAMPLES)
    as_tool = ("--served.observation-role", "tool")
    with serving(model, tmp_path) as server:
        add, added = Kept.add, []

        def dying(self: Kept, *what: Any) -> None:
            add(self, *what)
            added.append(what)
            if len(added) == 40:
                server.kill()

        with monkeypatch.context() as patch:
            patch.setattr(Kept, "add", dying)
            with pytest.raises(UserError, match=r"(\d+) of 225 episodes are kept"):
                evaluated(server, "identity", *as_tool, "--served.max-retries", "0")
        before = (tmp_path / "served" / EPISODES).read_text()
        assert 40 <= before.count("\n") < 225
        server.start()
        there = evaluated(server, "identity", *as_tool)
        after = (tmp_path / "served" / EPISODES).read_text()
        assert after.startswith(before) and after.count("\n") == 225, "what ended was not played again"
        found = difference(here["sampled"], there["sampled"])
        assert found.low <= 0 <= found.high
        assert texts(here["greedy"]) == texts(there["greedy"])
        hot = evaluated(server, "identity", *as_tool, "--temperature", "2", name="hot")
        other = difference(here["sampled"], hot["sampled"])
        assert other.high < 0, "the control: another temperature is noticed"


def test_tool_calls(evaluated: Evaluated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny model knows no tools, so one is cloned on turns in the Hermes format, as vLLM's parser reads them."""
    import hermes_env

    monkeypatch.setitem(registry.ENVS, "hermes", "hermes_env:HermesEnv")
    model = tiny(registry.make("hermes"), flaw=0.3, demonstrations=300, steps=150)
    tasks = pick_tasks(registry.make("hermes"), "test", TASKS)
    here = in_process("hermes", model, REACT, tasks, SAMPLES)
    reads = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    with serving(model, tmp_path, hermes_env.TEMPLATE, *reads) as server:
        there = evaluated(server, "identity", "--served.tools")
        found = difference(here["sampled"], there["sampled"])
        assert found.low <= 0 <= found.high
        assert here["greedy"].successes() == there["greedy"].successes()
        assert "<action>SAY(" in texts(there["greedy"])[0][0], "calls came back as calls"
        without = evaluated(server, "identity", samples=1, name="without")
        assert not any(without["greedy"].successes()), "the control: without tools there are no calls"


def test_thoughts(evaluated: Evaluated, tmp_path: Path) -> None:
    env = registry.make("math")
    model = tiny(env, demonstrations=300, steps=200)
    here = in_process("math", model, REACT, pick_tasks(env, "test", TASKS), 2)
    with serving(model, tmp_path) as server:
        there = evaluated(server, "math", "--served.prefill", samples=2)
    found = difference(here["sampled"], there["sampled"])
    assert found.low <= 0 <= found.high
    same = sum(a == b for a, b in zip(texts(here["greedy"]), texts(there["greedy"]), strict=True))
    print(f"greedy thoughts: {same} of {TASKS} episodes the same")
    assert same >= TASKS - 1, "rounding may break a tie"
