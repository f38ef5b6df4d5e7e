"""What is paid: the share of what was wrong, judged however an episode ends, by checks that nobody is shown."""

import pytest
from small_tasks import REPAIR, SmallEnv, do, small, started

from agent_envs.actions import render
from agent_envs.code.reward import reward


def ended(env: SmallEnv, *bodies: str) -> tuple[float, bool]:
    do(env, "VIEW")
    for body in bodies:
        do(env, "EDIT", "4", body)
    _, earned, terminated, _, info = env.step(render("SUBMIT"))
    assert terminated
    return earned, info["success"]


@pytest.mark.parametrize(
    ("body", "earned"),
    [
        ("        found += item\n", 1.0),
        ("        found -= item  # no change at all\n", 0.0),  # two of four passed before, and still do
        ("        found = item\n", 1 / 2),  # one more
        ("        found += 1\n", 0.0),  # one fewer
        ("        raise ValueError\n", 0.0),
    ],
)
def test_the_reward_is_the_share_of_what_was_wrong(body: str, earned: float) -> None:
    assert ended(started(), body) == (earned, earned == 1.0)


def test_submitting_without_an_edit_scores_nothing() -> None:
    assert ended(started()) == (0.0, False)
    env = started()
    do(env, "VIEW")
    do(env, "EDIT", "4", "        found += item\n")
    do(env, "UNDO")
    assert env.step(render("SUBMIT"))[1] == 0.0


def test_the_formula() -> None:
    assert [reward(passed, 4, lambda: 2) for passed in range(5)] == [0.0, 0.0, 0.0, 0.5, 1.0]
    assert [reward(passed, 4, lambda: 0) for passed in range(5)] == [0.0, 0.25, 0.5, 0.75, 1.0]
    with pytest.raises(ValueError, match="5 of 4 checks cannot pass"):
        reward(5, 4, lambda: 0)


def test_the_last_turn_is_judged_as_the_files_stand() -> None:
    env = started(turns=3)
    assert do(env, "VIEW").endswith("\n(2 turns left)")
    assert do(env, "EDIT", "4", "        found += item\n").endswith("\n(1 turn left)")
    text, earned, terminated, truncated, info = env.step(render("EDIT", "zzz", "", "x\n"))
    assert (text, earned, terminated, truncated, info["success"]) == ("", 1.0, True, False, True)


def test_a_turn_without_an_action_is_one_and_the_last_one_judged_as_well() -> None:
    env = started(turns=3)
    do(env, "VIEW")
    do(env, "EDIT", "4", "        found = item\n")
    text, earned, terminated, truncated, info = env.step("no action")
    assert (text, earned, terminated, truncated, info["success"]) == ("", 0.5, True, False, False)
    assert info["invalid"] and info["metrics"]["passed"] == 0.75


def test_hidden_checks_and_the_solution_are_told_to_nobody() -> None:
    env = small()
    seen, info = env.reset(options={"task": REPAIR})
    over = False
    while not over:
        text, _, terminated, truncated, info = env.step(env.expert())
        seen, over = f"{seen}\n{text}\n{info}", terminated or truncated
    assert "total([5])" not in seen and "total([1, 2])" in seen


def test_a_verdict_that_can_be_forged_says_so() -> None:
    env = small(grader="in-process")
    cheat = "import os\nos._exit(0)\n"
    assert env.reset(options={"task": REPAIR})[1]["forgeable"] is True
    do(env, "VIEW")
    info = env.step(render("EDIT", "1:0", "", cheat))[4]
    assert info["forgeable"] is True
    assert env.step(render("SUBMIT"))[1] == 1.0  # so it must be marked
    env = started()
    do(env, "VIEW")
    do(env, "EDIT", "1:0", cheat)
    assert env.step(render("SUBMIT"))[1] == 0.0
