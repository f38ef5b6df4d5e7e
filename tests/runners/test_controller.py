"""Portions: how many workers an update can keep busy, and what is said where that is too few."""

import pytest

from agents.rollout.settings import FaultSettings
from runners.workers.base import Workers
from runners.workers.controller import Controller


def controller(portion: int) -> Controller:
    workers: Workers = None  # type: ignore[assignment]
    return Controller(workers, portion, FaultSettings())


def test_workers_that_never_play_are_named() -> None:
    said = controller(128).idle(128, 1, workers=2, ahead=0)
    assert said == (
        "workers: 1 of 2 play at a time, for an update of 128 episodes is 1 portion of 128: lower --slots to 64"
    )
    assert "2 of 5 play at a time" in controller(64).idle(128, 1, workers=5, ahead=0)
    assert "3 of 4 play at a time" in controller(60).idle(100, 16, workers=4, ahead=0)


@pytest.mark.parametrize("portion, workers, ahead", [(64, 2, 0), (128, 1, 0), (128, 2, 1), (50, 3, 0), (128, 3, 2)])
def test_else_nothing_is_said(portion: int, workers: int, ahead: int) -> None:
    assert controller(portion).idle(128, 1, workers, ahead) == ""


def test_tasks_whose_episodes_stay_together_make_whole_portions() -> None:
    assert [controller(60).portion_of(group) for group in (1, 8, 16, 100)] == [60, 56, 48, 100]
