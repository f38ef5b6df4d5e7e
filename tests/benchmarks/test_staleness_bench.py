"""The staleness benchmark: what it compares, and that its condition can fail."""

from pathlib import Path

from benchmarks.staleness import ARMS, BASE, Staleness, Trained, conditions, differences, folder_of
from runners.settings.run_settings import read_settings


def of(*sampled: float) -> list[Trained]:
    return [Trained(success, *[0.0] * 6) for success in sampled]


def test_an_arm_is_compared_with_the_same_seeds() -> None:
    off = differences({BASE: of(0.8, 0.9), "S = 1": of(0.81, 0.93), "S = 2, no correction": of(0.5, 0.6)})
    assert {arm: round(difference, 9) for arm, difference in off.items()} == {
        "S = 1": 0.02,
        "S = 2, no correction": -0.3,
    }
    assert [holds for _, holds in conditions(off)] == [True], "what is only shown has no condition"
    assert [holds for _, holds in conditions({"S = 1": -0.031, "S = 1, from the learner": -0.5})] == [False]


def test_every_arm_is_a_run_of_its_own() -> None:
    folders = {folder_of(Staleness(), arm, seed) for arm in ARMS for seed in (0, 1)}
    assert len(folders) == 2 * len(ARMS) and folder_of(Staleness(), "S = 2, no correction", 0) == Path(
        "runs/staleness/S2-no-correction-0"
    )
    for flags in ARMS.values():
        read_settings(["--workers", "1", *flags])
