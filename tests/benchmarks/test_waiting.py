"""The benchmark of the learner's waiting: its conditions can fail, each for its own reason."""

from benchmarks.waiting import Update, conditions


def held(waits: Update, ahead: Update) -> list[bool]:
    return [holds for _, holds in conditions(waits, ahead)]


def test_conditions_can_fail() -> None:
    alike, idle = Update(1.0, 0.9, 0.1), Update(0.05, 0.9, 0.1)
    assert held(alike, idle) == [True, True, True]
    assert held(alike, alike) == [True, False, True], "nothing was played ahead"
    assert held(Update(0.4, 0.9, 0.1), idle) == [False, True, True], "rollouts are faster"
    assert held(Update(0.01, 0.9, 0.1), idle) == [False, True, False]
