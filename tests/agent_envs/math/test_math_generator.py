"""Generated problems: deterministic, graded, and never in two splits."""

from itertools import product

import pytest

from agent_envs.core import SPLITS, SettingsError
from agent_envs.math.columns import APPLY, carries, columns
from agent_envs.math.config import MathConfig, Verifier
from agent_envs.math.env import MathEnv
from agent_envs.math.problem import Chain, ask, generate


def chains(config: MathConfig, split: str, count: int) -> list[Chain]:
    return [generate(config, split, i).data.chain for i in range(count)]


def test_no_problem_and_no_beginning_of_one_is_in_two_splits() -> None:
    config = MathConfig(min_steps=1, max_steps=4, digits=1)
    found = {split: chains(config, split, 400) for split in SPLITS}
    begins = {split: {(c.start, c.steps[0]) for c in found[split]} for split in SPLITS}
    whole = {split: {(c.start, c.steps) for c in found[split]} for split in SPLITS}
    for one, other in (("train", "valid"), ("train", "test"), ("valid", "test")):
        assert not begins[one] & begins[other] and not whole[one] & whole[other]
    assert sum(len(b) for b in begins.values()) > 60, "the control: hardly a beginning is left out"


def test_the_language_is_not_what_makes_a_problem() -> None:
    english, chinese = (MathConfig(languages=(language,), verifier=Verifier.EXACT) for language in ("en", "zh"))
    assert chains(english, "test", 50) == chains(chinese, "test", 50)
    prompts = [MathEnv(config).tasks("test")[0].prompt for config in (english, chinese)]
    assert prompts[0] != prompts[1]


def test_the_generator_repeats_itself_and_levels_are_steps() -> None:
    config = MathConfig(min_steps=1, max_steps=6, operations=("+", "-", "×"))
    tasks = [generate(config, "train", i) for i in range(120)]
    assert tasks == [generate(config, "train", i) for i in range(120)]
    assert tasks != [generate(MathConfig(min_steps=1, max_steps=6, seed=1), "train", i) for i in range(120)]
    assert {(t.level, t.language) for t in tasks} == set(product(range(1, 7), ("en", "zh")))
    assert all(len(t.data.chain.steps) == t.level for t in tasks)
    assert {sign for t in tasks for sign, _ in t.data.chain.steps} == {"+", "-", "×"}


@pytest.mark.parametrize(("digits", "low", "high"), [(1, 0, 9), (2, 10, 99), (3, 100, 999)])
def test_all_numbers_have_the_digits_of_the_settings(digits: int, low: int, high: int) -> None:
    for chain in chains(MathConfig(digits=digits, max_steps=4), "train", 200):
        value = chain.start
        for step, (_, operand) in enumerate(chain.steps):
            assert low <= value <= high and max(1, low) <= operand <= high
            value = chain.value(step, value)
        assert low <= value == chain.answer <= high


def test_how_often_something_is_carried() -> None:
    def share(wanted: float) -> float:
        found = []
        for chain in chains(MathConfig(carries=wanted), "train", 300):
            value = chain.start
            for step, (sign, operand) in enumerate(chain.steps):
                found.append(carries(value, sign, operand))
                value = chain.value(step, value)
        return sum(found) / len(found)

    assert share(0.0) < 0.05 < 0.35 < share(0.6) < 0.5 < share(1.0)
    with pytest.raises(SettingsError, match=r"math: carries must be from 0 to 1, not 1\.5"):
        MathConfig(carries=1.5)


def test_a_problem_by_hand() -> None:
    chain = Chain(47, (("+", 38), ("-", 29), ("×", 7)))
    assert chain.answer == 392
    assert ask(chain, "en") == "A = 47, B = A + 38, C = B - 29, D = C × 7. What is D?"
    assert ask(chain, "zh") == "A = 47，B = A + 38，C = B - 29，D = C × 7。求 D。"


def test_ids_are_found_and_foreign_ones_are_not() -> None:
    tasks = MathEnv(MathConfig(verifier=Verifier.EXACT)).tasks("valid")
    assert tasks.find("math-valid-17") == tasks[17]
    for wrong in ("math-train-17", "math-valid-017", "math-valid-1000", "math-valid-x", "math-valid-"):
        assert tasks.find(wrong) is None


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"min_steps": 4}, "min_steps must be from 1 to 3, not 4"),
        ({"digits": 5}, "digits must be from 1 to 4"),
        ({"operations": ("+", "/")}, "operations must be distinct ones"),
        ({"languages": ()}, "languages must be distinct ones"),
        ({"skill": 1.0}, "skill must lie between 0 and 1"),
        ({"source": "no such file"}, "no source 'no such file'"),
        ({"source": "reasoning-gym:chain_some"}, "did you mean 'chain_sum'"),
        ({"source": "reasoning-gym:sudoku"}, "sudoku is not an arithmetic or algebra family"),
        ({"operations": ("×",), "max_steps": 6, "min_steps": 6, "digits": 1}, "allow more digits or operations"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_one_line(wrong: dict[str, object], words: str) -> None:
    if "reasoning" in str(wrong.get("source")):
        pytest.importorskip("reasoning_gym")
    with pytest.raises(SettingsError, match=words) as error:
        MathEnv(MathConfig(verifier=Verifier.EXACT, **wrong)).tasks("train")[0]  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_columns_are_right_with_carrying_and_wrong_without() -> None:
    assert columns(47, "+", 38) == (["7 + 8 = 15", "4 + 3 + 1 = 8"], 85)
    assert columns(47, "+", 38, forget=True) == (["7 + 8 = 15", "4 + 3 = 7"], 75)
    assert columns(85, "-", 29) == (["15 - 9 = 6", "8 - 2 - 1 = 5"], 56)
    assert columns(67, "+", 58)[1] == 125 and columns(5, "+", 98)[1] == 103
    assert columns(12, "×", 7) == (["2 × 7 = 14", "1 × 7 + 1 = 8"], 84)
    for a, b in product(range(0, 130, 3), range(0, 130, 7)):
        for sign in ("+", "-", "×"):
            if (sign == "-" and b > a) or (sign == "×" and b > 9):
                continue
            value = APPLY[sign](a, b)
            assert columns(a, sign, b)[1] == value
            assert (columns(a, sign, b, forget=True)[1] != value) is carries(a, sign, b)
