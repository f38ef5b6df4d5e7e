"""Settings of a usual name are refused in the same words by every algorithm that has them."""

from dataclasses import fields, replace
from enum import StrEnum

import pytest

from algorithms import ALGORITHMS
from algorithms.base import RANGES, Algorithm

WRONG = {
    **dict.fromkeys(("discount", "gae_lambda", "clip_low"), (-0.5, 1.5)),
    "clip": (0.0, 1.0),
    "dual_clip": (1.0,),
    **dict.fromkeys(("clip_high", "std_eps", "value_coef", "kl_coef"), (-0.5,)),
    **dict.fromkeys(("length_norm", "value_clip"), (0.0, -1.0)),
    "group": (0, -1),
}
RIGHT = dict.fromkeys(
    ("discount", "gae_lambda", "clip_low", "clip", "clip_high", "std_eps", "value_coef", "kl_coef"), 0.5
)
RIGHT |= {"dual_clip": 1.5, "length_norm": 0.5, "value_clip": 0.5, "group": 16}


def having(name: str) -> list[Algorithm]:
    made = [algorithm() for algorithm in ALGORITHMS.values()]
    return [one for one in made if name in {field.name for field in fields(one)}]


@pytest.mark.parametrize("name", sorted(RANGES))
def test_what_is_out_of_range_is_refused_and_what_is_within_is_not(name: str) -> None:
    assert having(name)
    for algorithm in having(name):
        assert getattr(replace(algorithm, **{name: RIGHT[name]}), name) == RIGHT[name]
        for value in WRONG[name]:
            with pytest.raises(ValueError, match=rf"^{name} must .*{value}$"):
                replace(algorithm, **{name: value})


def test_choices_that_there_are_not_are_refused() -> None:
    seen = 0
    for algorithm in (made() for made in ALGORITHMS.values()):
        for field in fields(algorithm):
            if isinstance(field.default, StrEnum):
                seen += 1
                assert replace(algorithm, **{field.name: str(field.default)})
                with pytest.raises(ValueError, match=r"must be one of .*, not 'nonsense'$"):
                    replace(algorithm, **{field.name: "nonsense"})
    assert seen > 20


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_a_divergence_needs_the_reference(name: str) -> None:
    algorithm = ALGORITHMS[name]()
    assert not algorithm.needs.reference
    if algorithm in having("kl_coef"):
        assert replace(algorithm, kl_coef=0.1).needs.reference
