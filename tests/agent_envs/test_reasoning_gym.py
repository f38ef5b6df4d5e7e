"""reasoning-gym's tasks: the contract, full marks only, hostile answers, and no trace in global random state."""

import random
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("reasoning_gym")

import agent_envs.reasoning_gym
from agent_envs import SettingsError
from agent_envs.contract.check import check_text_env
from agent_envs.isolation.grader import Limits, Outside
from agent_envs.reasoning_gym import entries as data
from agent_envs.reasoning_gym.env import (
    ReasoningGymConfig,
    ReasoningGymEnv,
    read,
    spoiled,
    write,
)

FEW = {"train_tasks": 12, "held_out_tasks": 6}


def began(dataset: str = "countdown", **settings: object) -> ReasoningGymEnv:
    env = ReasoningGymEnv(ReasoningGymConfig(dataset, **{**FEW, **settings}))  # type: ignore[arg-type]
    env.reset(options={"task": env.tasks("train")[0]})
    return env


@pytest.mark.parametrize("dataset", ["binary_matrix", "leg_counting"])
def test_contract(dataset: str) -> None:
    check_text_env(lambda: ReasoningGymEnv(ReasoningGymConfig(dataset, **FEW)), tasks=2)  # type: ignore[arg-type]


def test_drafts_then_one_answer() -> None:
    env = began(turns=3)
    text, earned, terminated, *_ = env.step("DRAFT(first the large ones)")
    assert (text, earned, terminated) == ("noted, 2 turns left", 0.0, False)
    twin = env.fork()
    _, earned, terminated, _, info = env.step(f"SUBMIT({env.task.data.answer})")
    assert (earned, terminated, info["success"]) == (1.0, True, True)
    assert info["metrics"] == {"invalid": 0.0, "drafts": 1.0, "unverified": 0.0}
    assert twin.step("DRAFT(x)")[0] == "noted, 1 turn left"
    third = twin.fork()
    assert twin.step("DRAFT(x)")[:4] == ("", 0.0, True, False), "without an answer the turns run out: a failure, no cut"
    assert third.step("no action")[:4] == ("", 0.0, True, False), "without an action, too"


def test_only_full_marks_are_a_success() -> None:
    answer = began().task.data.answer
    for given, right in ((f"({answer})", True), (f"1*({answer})", False), (f"{answer}+0", False), ("7", False)):
        env = began()
        _, earned, terminated, _, info = env.step(f"SUBMIT({given})")
        assert (earned, terminated, info["success"]) == (float(right), True, right), given
        assert info["metrics"]["unverified"] == 0.0


def test_the_scorer_itself_pays_small_change_for_a_wrong_answer() -> None:
    task = began().task.data
    scorer = Outside("agent_envs.reasoning_gym.entries:score", Limits(cpu_seconds=5))
    try:
        small = scorer.call("countdown", 0, task.number, task.question, "7").value
        assert isinstance(small, float) and 0 < small < 1, "which is why a score above 0 is no success"
        assert scorer.call("countdown", 0, task.number, task.question, task.answer).value == 1.0
        reply = scorer.call("countdown", 0, task.number + 1, task.question, task.answer)
        assert reply.value is None and "is another one in this process" in reply.reason
    finally:
        scorer.close()


def test_hostile_answers_neither_run_nor_hang(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    for answer in (
        f"__import__('pathlib').Path('{mark}').touch()",
        "9**9**9**9",
        "[" * 3000,
    ):
        env = began(score_seconds=1)
        info = env.step(f"SUBMIT({answer})")[4]
        assert info["success"] is False and not mark.exists(), answer
    open(mark, "w").close()
    assert mark.exists(), "it would be seen"


def test_answers_of_several_lines_are_written_in_one() -> None:
    env = began("binary_matrix")
    answer = env.task.data.answer
    assert "\n" in answer and "\n" not in env.expert() and read(write(answer)) == answer
    assert env.step(env.expert())[4]["success"] is True
    twin = began("binary_matrix")
    assert twin.step(f"SUBMIT({answer})")[4]["invalid"], "an action is one line"


@pytest.mark.parametrize("dataset", ["pool_matrix", "list_functions"])
def test_entries_depend_on_their_number_only_and_leave_no_trace(dataset: str) -> None:
    """Both data sets draw from the global generators."""
    random.seed(1)
    np.random.seed(1)
    before = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index,union-attr]
    first = data.entry(dataset, 0, 5)["question"]
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # type: ignore[index,union-attr]
    random.seed(2)
    np.random.seed(2)
    data.entry(dataset, 0, 70)
    data.opened.cache_clear()
    assert data.entry(dataset, 0, 5)["question"] == first != data.entry(dataset, 1, 5)["question"]


def test_splits_share_no_question_and_tasks_are_made_when_asked_for() -> None:
    env = ReasoningGymEnv(ReasoningGymConfig("leg_counting"))
    questions = {split: {env.tasks(split)[at].prompt for at in range(8)} for split in ("train", "valid", "test")}
    assert len(set().union(*questions.values())) == sum(map(len, questions.values())) > 20
    assert len(env.tasks("train")) == 1000 and env.tasks("test").find("leg_counting-test-200") is None


def test_spoiled_answers() -> None:
    assert [spoiled(answer) for answer in ("12+9", "7 x", "yes", "y", "")] == ["12+0", "8 x", "ye", "?", "?"]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"dataset": "cuntdown"}, "no data set 'cuntdown'; did you mean 'countdown'"),
        ({"dataset": "composite"}, "no data set 'composite'"),
        ({"dataset": "rush_hour"}, "of 64 entries of rush_hour none is a train task with an answer of its own"),
        ({"turns": 0}, "turns must be at least 1"),
        ({"turns": 13}, "max_turns must be at least turns"),
        ({"seed": -1}, "seed must be at least 0, not -1"),
    ],
)
def test_bad_settings(settings: dict[str, object], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        ReasoningGymEnv(ReasoningGymConfig(**settings)).prepare()  # type: ignore[arg-type]


def test_without_the_package_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "agent_envs.reasoning_gym.entries", raising=False)
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    monkeypatch.delattr(agent_envs.reasoning_gym, "entries", raising=False)
    with pytest.raises(SettingsError, match=r"pip install 'turnwise\[reasoning-gym\]'"):
        ReasoningGymEnv(ReasoningGymConfig("leg_counting", seed=77)).prepare()
