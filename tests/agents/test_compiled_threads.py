"""Calls of C at once."""

import signal
import time
from functools import partial
from threading import Barrier, Thread, get_ident

import pytest
import torch

from agents.compiled.threads import allow, allowed, allowing, in_threads, shares
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


def test_within_a_call_of_several_there_are_no_further_ones() -> None:
    """They would wait for threads that wait for them."""
    seen: list[int] = []

    def call() -> None:
        seen.append(allowed())
        in_threads([lambda: seen.append(allowed())] * len(shares(1000, 1)))

    with allowing(4):
        in_threads([call] * 3)
        assert seen == [1] * 6 and allowed() == 4
        in_threads([call])
        assert seen[6:] == [4, *[1] * 4], "one call alone may have others within"


@pytest.mark.parametrize(
    ("count", "least", "parts"),
    [(9, 3, [(0, 3), (3, 6), (6, 9)]), (8, 3, [(0, 4), (4, 8)]), (2, 3, [(0, 2)]), (0, 3, [(0, 0)])],
)
def test_parts_are_no_smaller_than_pays(count: int, least: int, parts: list[tuple[int, int]]) -> None:
    with allowing(3):
        assert shares(count, least) == parts


def test_within_a_call_pytorch_has_the_threads_of_the_caller(one_thread: None) -> None:
    """Also in threads that were there before: with another number PyTorch adds in another order."""

    def found() -> list[int]:
        counts = [0, 0]

        def count(place: int) -> None:
            counts[place] = torch.get_num_threads()

        in_threads([partial(count, place) for place in range(len(counts))])
        return counts

    for threads in (1, 2, 1):
        torch.set_num_threads(threads)
        assert found() == [threads, threads]


def test_callers_share_the_threads() -> None:
    """Many at once, each of whom gets what is its own."""
    found: list[list[int]] = []

    def caller(number: int) -> None:
        mine: list[int] = []
        for _ in range(50):
            in_threads([lambda: mine.append(number)] * 3)
        found.append(mine)

    callers = [Thread(target=caller, args=[number]) for number in range(8)]
    for one in callers:
        one.start()
    for one in callers:
        one.join(30)
    assert sorted(mine[0] for mine in found) == list(range(8)) and all(len(mine) == 150 for mine in found)


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
