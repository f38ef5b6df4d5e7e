"""The share of broken attempts above which a program stops."""

import pytest

from agents.rollout.settings import FaultSettings
from runners.command_line.errors import UserError
from runners.workers.fault_rate import FaultRate


def test_few_attempts_tell_nothing_and_old_ones_are_forgotten() -> None:
    rate = FaultRate(FaultSettings(max_rate=0.5))
    for _ in range(19):
        rate.add(1, 1, None)
    rate.add(0, 400, None)
    rate.add(99, 200, None)
    with pytest.raises(UserError, match="broke in 101 of the last 200 attempts, most recently: earlier; fix it"):
        rate.add(101, 200, None)


def test_a_rate_above_the_limit_stops() -> None:
    rate = FaultRate(FaultSettings(max_rate=0.5))
    rate.add(10, 19, None)
    rate.add(0, 1, None)
    rate.add(0, 1, None)
    with pytest.raises(UserError, match="broke in 13 of the last 24 attempts"):
        rate.add(3, 3, None)
