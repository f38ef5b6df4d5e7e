"""`turnwise bench`: the same row twice, another seed another row, and what is no row of the suite says so."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from bench_cases import Command, command, pinned, small_suite

from agent_envs.core import Outcome
from agent_envs.identity.env import IdentityEnv
from runners import bench
from runners.benching.suites import Entry, Suite
from runners.command_line.errors import UserError
from runners.command_line.small_budget import SMALL, VARIABLE

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    return command(tmp_path, monkeypatch, small_suite())


def test_a_row_is_the_same_twice_and_another_seed_is_another_row(
    run: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = run("--agent", "random"), run("--agent", "random")
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("row:", "digest:"))]
    assert said[:2] == said[2:] and said[1] == f"digest: {first['digest']}"
    assert first["digest"] == second["digest"]
    assert json.dumps(first["reproducible"]) == json.dumps(second["reproducible"])
    assert json.dumps(first["figures"]) == json.dumps(second["figures"])
    other = run("--agent", "random", "--seed", "1")
    assert other["digest"] != first["digest"]
    assert [e["tasks"] for e in other["reproducible"]["entries"]] != [
        e["tasks"] for e in first["reproducible"]["entries"]
    ], "not the seed's number alone"


def test_where_nothing_is_named_the_random_agent_plays(run: Command) -> None:
    assert run()["digest"] == run("--agent", "random")["digest"] != run("--agent", "expert")["digest"]


def test_no_time_and_no_machine_is_in_the_digest(run: Command) -> None:
    row = run("--agent", "expert")
    assert not re.search("second|hardware|processor|version", json.dumps(row["reproducible"]))
    measured = row["measured"]
    assert set(measured["seconds"]) == {"short", "long"} and measured["hardware"]["cores"] >= 1
    assert measured["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))


def test_the_expert_is_right_everywhere_and_its_costs_are_counted(run: Command) -> None:
    row = run("--agent", "expert")
    assert row["figures"]["success"] == {"mean": 1.0, "low": 1.0, "high": 1.0}
    assert row["figures"]["costs"] == {"turns": 6 * 2 + 6 * 3, "tokens": 0, "prompt_tokens": 0}
    short, long = row["reproducible"]["entries"]
    assert [one["turns"] for one in short["tasks"]] == [2] * 6 and [one["turns"] for one in long["tasks"]] == [3] * 6
    chance = run("--agent", "random")["figures"]
    assert chance["success"]["mean"] < 1


def test_a_part_of_the_suite_says_so(run: Command, capsys: pytest.CaptureFixture[str]) -> None:
    whole = run("--agent", "expert")
    assert whole["reproducible"]["whole"] is True and "not a row" not in capsys.readouterr().out
    part = run("--agent", "expert", "--tasks", "4")
    said = capsys.readouterr().out
    assert part["reproducible"]["whole"] is False and part["digest"] != whole["digest"]
    assert "not a row of the suite" in said and "| small-1, 8 tasks only | expert |" in said


def test_a_small_budget_is_a_part_too(run: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, "small")
    large = Suite("large-1", "Words.", (pinned(Entry("all", "identity", "", tasks=20)),))
    row = command(tmp_path, monkeypatch, large)("--agent", "random")
    assert row["reproducible"]["whole"] is False and row["figures"]["entries"]["all"]["tasks"] == SMALL["tasks"]


def test_tasks_do_not_hang_together(run: Command) -> None:
    """Each task's result is the same among all of them and among a few."""
    whole, part = (run("--agent", "random", *more)["reproducible"]["entries"] for more in ((), ("--tasks", "3")))
    for all_of, some_of in zip(whole, part, strict=True):
        known = {one["task"]: one for one in all_of["tasks"]}
        assert len(some_of["tasks"]) == 3 and all(known[one["task"]] == one for one in some_of["tasks"])


def test_other_dynamics_change_the_digest(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tasks are the same and so is every verdict; only what the agent reads differs."""
    before, act = run("--agent", "expert"), IdentityEnv._act

    def other(env: IdentityEnv, action: object) -> Outcome:
        outcome = act(env, action)  # type: ignore[arg-type]
        return Outcome(f"{outcome.text}!", outcome.reward, outcome.terminated, outcome.success)

    monkeypatch.setattr(IdentityEnv, "_act", other)
    after = run("--agent", "expert")
    assert after["figures"] == before["figures"] and after["digest"] != before["digest"]


def test_an_environment_that_fails_is_one_line(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(env: IdentityEnv, action: object) -> Outcome:
        raise RuntimeError("no\nluck")

    monkeypatch.setattr(IdentityEnv, "_act", fails)
    with pytest.raises(UserError, match=r"the environment identity failed in the task .*: RuntimeError: no luck"):
        run("--agent", "expert")


def test_an_environment_without_an_expert_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = pinned(Entry("lake", "gym", "", {"id": "FrozenLake-v1"}, tasks=2))
    run = command(tmp_path, monkeypatch, Suite("lake-1", "Ice.", (lake,)))
    with pytest.raises(UserError, match="--agent expert: the environment of lake has no scripted expert"):
        run("--agent", "expert")
    assert run("--agent", "random")["figures"]["entries"]["lake"]["tasks"] == 2


def test_the_list_shows_every_suite(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["turnwise bench", "--list"])
    bench.main()
    said = capsys.readouterr().out
    assert all(f"{name}: " in said for name in ("wiki-1", "code-1", "third-party-1"))
    assert "  repair: 60 test tasks of code (kind repair, languages en), " in said


@pytest.mark.runs
def test_the_third_party_suite_gives_the_same_row_in_two_processes() -> None:
    said = []
    for hashed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", "from runners.cli import main; main()", "bench", "--suite", "third-party-1"],
            capture_output=True, text=True, cwd=ROOT, timeout=600, env={**os.environ, "PYTHONHASHSEED": hashed},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        said.append(
            [line for line in done.stdout.splitlines() if line.startswith(("row: | third-party-1 |", "digest:"))]
        )
    assert len(said[0]) == 2 and said[0] == said[1]
