"""Calls of C at once."""

import signal
import time
from threading import Barrier, get_ident

import pytest
import torch

from agents.compiled.threads import allow, allowed, allowing, in_threads
from runners.settings.train_settings import Train
from runners.training.interrupts import Stopped
from runners.training.threads import compute_in_threads


def test_calls_are_made_at_once_and_one_of_them_here() -> None:
    together, idents = Barrier(3, timeout=10), []

    def call() -> None:
        together.wait()
        idents.append(get_ident())

    for _ in range(2):
        in_threads([call] * 3)
    assert len(set(idents[:3])) == 3 and get_ident() in idents[:3] and get_ident() in idents[3:]


@pytest.mark.parametrize("wrong", [0, 1])
def test_an_error_is_raised_when_the_others_have_ended(wrong: int) -> None:
    ended: list[int] = []

    def call(number: int) -> None:
        if number == wrong:
            raise ValueError(number)
        ended.append(number)

    with pytest.raises(ValueError, match=str(wrong)):
        in_threads([lambda number=number: call(number) for number in range(3)])
    assert sorted(ended) == [number for number in range(3) if number != wrong]


def test_a_signal_waits_for_the_others() -> None:
    ended: list[int] = []

    def late() -> None:
        time.sleep(0.3)
        ended.append(1)

    def stop(*_: object) -> None:
        raise Stopped(signal.SIGTERM)

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Stopped):
            in_threads([lambda: None, late])
        assert ended == [1]
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_run_says_how_many(one_thread: None) -> None:
    assert allowed() == torch.get_num_threads() == 1
    try:
        compute_in_threads(Train(compiled_threads=3))
        assert (allowed(), torch.get_num_threads()) == (3, 1)
        with allowing(0):
            assert allowed() == 1
        assert allowed() == 3
    finally:
        allow(0)
