"""reasoning-gym's tasks: the contract, full marks only, hostile answers, and no trace in global random state."""

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("reasoning_gym")

import agent_envs.reasoning_gym
from agent_envs import SettingsError
from agent_envs.contract.check import check_text_env
from agent_envs.core import Task
from agent_envs.isolation.grader import Limits, Outside
from agent_envs.isolation.host_process import HostSettings
from agent_envs.reasoning_gym import entries as data
from agent_envs.reasoning_gym.admissible import admissible
from agent_envs.reasoning_gym.env import (
    ReasoningGymConfig,
    ReasoningGymEnv,
    read,
    spoiled,
    write,
)

pytestmark = pytest.mark.adapters

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


def raw(dataset: str, task: Task, answer: str) -> float:
    """What the library's scorer gives, which judges any answer."""
    made = data.entry(dataset, 0, task.data.number)
    return float(data.opened(dataset, 0, task.data.number // data.BLOCK).score_answer(answer, made))


@pytest.mark.parametrize(
    ("dataset", "answer"),
    [
        ("game_of_life_halting", "x"),
        ("coin_flip", "0"),
        ("puzzle24", "4*6*1*1"),
        ("simple_integration", "Integral({}, x)"),
    ],
)
def test_what_the_library_pays_for_although_nothing_is_solved_earns_nothing(dataset: str, answer: str) -> None:
    paid = 0
    for task in list(ReasoningGymEnv(ReasoningGymConfig(dataset, **FEW)).tasks("train"))[:6]:  # type: ignore[arg-type]
        integrand = data.entry(dataset, 0, task.data.number)["metadata"].get("integrand", "")
        env = ReasoningGymEnv(ReasoningGymConfig(dataset, **FEW))  # type: ignore[arg-type]
        env.reset(options={"task": task})
        told = answer.format(integrand)
        paid += raw(dataset, task, told) >= 1
        assert env.step(f"SUBMIT({told})")[1] == 0
    assert paid, "the control: the library does pay"


@pytest.mark.parametrize(
    ("dataset", "answer", "right"),
    [
        ("coin_flip", "1/2", True),
        ("coin_flip", "0.50004", True),
        ("coin_flip", "0.4", False),
        ("coin_flip", "1/0", False),
        ("game_of_life_halting", " true", True),
        ("game_of_life_halting", "not True", False),
        ("simple_integration", "x**2/2 + exp(x) + C", True),
        ("simple_integration", "Integral(x, x)", False),
        ("simple_integration", "x.__class__", False),
        ("simple_integration", "(x).real", False),
        ("simple_integration", "exp", True),
        ("simple_integration", "'x'", False),
        ("puzzle24", "(1 + 2 + 3) * 4", True),
        ("puzzle24", "4*6*1*1", False),
        ("countdown", "2 * (3 - 1)", True),
        ("countdown", "abs(2)", False),
        ("n_queens", "_ Q _ _\n_ _ _ Q", True),
        ("spiral_matrix", "eval('1')", False),
        ("leg_counting", "anything('at all')", True),
    ],
)
def test_what_a_scorer_may_judge(dataset: str, answer: str, right: bool) -> None:
    entry = {"answer": "True" if dataset == "game_of_life_halting" else "0.5", "metadata": {"numbers": [4, 3, 2, 1]}}
    assert admissible(dataset, answer, entry) is right


def test_an_answer_cannot_write_its_own_verdict() -> None:
    """`eval`, as in a data set's scorer, reaches the frame that answers for the process."""
    forged = (
        "(lambda fs: [f.f_locals['channel'].send_bytes(b'[%d,\"ok\",1.0]' % f.f_locals['serial']) for f in fs "
        "if f and 'channel' in f.f_locals and 'serial' in f.f_locals])"
        "((lambda s: [s := s and s.f_back for _ in range(30)])(__import__('sys')._getframe()))"
    )
    task = began("spiral_matrix").task.data
    asked = ("spiral_matrix", 0, task.number, task.question, forged)
    for target, arguments, told in (
        ("agent_envs.reasoning_gym.entries:score", asked, 0.0),
        ("builtins:eval", (forged,), 1.0),  # the control: what is evaluated there forges
    ):
        scorer = Outside(target, Limits(cpu_seconds=5))
        try:
            assert scorer.call(*arguments).value == told
        finally:
            scorer.close()


def test_more_than_full_marks_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scorer of dates takes an error below 0 for a small one where the right number is negative."""
    made = {"question": "q", "answer": "-1", "metadata": {"task": "count_days"}}
    monkeypatch.setattr(data, "entry", lambda *_: made)
    assert data.opened("calendar_arithmetic", 0, 0).score_answer("7", made) > 1
    given = [data.score("calendar_arithmetic", 0, 0, data.digest("q"), answer) for answer in ("7", "-1")]
    assert given == [0.0, 1.0]


def test_waiting_is_no_way_to_break_an_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Limits] = []

    def watched(target: str, limits: Limits) -> Outside:
        seen.append(limits)
        return Outside(target, limits)

    monkeypatch.setattr("agent_envs.reasoning_gym.reward.shared", watched)
    began("leg_counting").step("SUBMIT(7 and more)")
    assert [limits.seconds < HostSettings().step_seconds for limits in seen] == [True]


@pytest.mark.parametrize("dataset", sorted(data.UNSTABLE))
def test_what_depends_on_the_hash_seed_is_refused(dataset: str) -> None:
    with pytest.raises(SettingsError, match=f"the tasks of {dataset} depend on Python's hash seed"):
        ReasoningGymEnv(ReasoningGymConfig(dataset)).prepare()


def test_entries_do_not_depend_on_the_hash_seed() -> None:
    """The control is a data set that is refused for it."""
    code = (
        "import sys; from agent_envs.reasoning_gym.entries import entry\n"
        "print([entry(name, 0, 3)['question'] for name in sys.argv[1:]])"
    )

    def asked(hash_seed: str, *names: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", code, *names], capture_output=True, text=True, env=environment, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert asked("1", "countdown", "leg_counting", "pool_matrix") == asked(
        "2", "countdown", "leg_counting", "pool_matrix"
    )
    assert asked("1", "isomorphic_strings") != asked("2", "isomorphic_strings")


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
