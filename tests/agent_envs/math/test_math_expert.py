"""The expert, its flawed twin, the kinds of their thoughts, and the oracle against the agent that it speaks of."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from agent_envs.math.config import MathConfig, Verifier
from agent_envs.math.env import MathEnv
from agent_envs.math.expert import Situation, next_thought
from agent_envs.math.oracle import chance
from agent_envs.math.problem import Chain
from agent_envs.math.progress import Progress, progress
from agent_envs.math.thought_kinds import Factor, counted, kind_of

EXACT = MathConfig(verifier=Verifier.EXACT)
HARD = MathConfig(min_steps=1, max_steps=6, operations=("+", "-", "×"), verifier=Verifier.EXACT)


def played(env: MathEnv, index: int, flaw: float, rng: np.random.Generator | None) -> tuple[bool, list[str]]:
    env.reset(options={"task": env.tasks("train")[index]})
    thoughts: list[str] = []
    while True:
        thoughts.append(env.expert(flaw=flaw, rng=rng))
        _, _, terminated, truncated, info = env.step(thoughts[-1])
        if terminated or truncated:
            return bool(info["success"]), thoughts


def test_the_expert_solves_everything_and_the_flawed_one_does_not() -> None:
    env, rng = MathEnv(HARD), np.random.default_rng(0)
    assert all(played(env, i, 0.0, None)[0] for i in range(150))
    assert all(played(env, i, 0.0, rng)[0] for i in range(150)), "a demonstrator without a flaw too"
    default = MathEnv(EXACT)
    share = np.mean([played(default, i, 0.65, rng)[0] for i in range(300)])
    assert 0.35 < share < 0.75, share


def test_demonstrations_hold_all_six_kinds_and_a_median_of_four_factors_or_more() -> None:
    env, rng = MathEnv(EXACT), np.random.default_rng(1)
    shown = [played(env, i, 0.65, rng) for i in range(200)]
    kinds = Counter(kind_of(text) for _, thoughts in shown for text in thoughts)
    assert all(kinds[kind] >= 10 for kind in Factor), kinds
    assert np.median([len(thoughts) for _, thoughts in shown]) >= 4
    assert np.median([len(played(env, i, 0.0, None)[1]) for i in range(100)]) >= 4
    mended = [success for success, thoughts in shown if any(kind_of(t) is Factor.MEND for t in thoughts)]
    rejected = [success for success, thoughts in shown if any(kind_of(t) is Factor.REJECT for t in thoughts)]
    assert any(mended) and any(rejected), "a mistake that is mended keeps success"


def test_below_zero_there_are_no_columns_and_everything_goes_on() -> None:
    chain = Chain(47, (("+", 38), ("-", 29), ("-", 10)))
    said = ["B = 5.\n\n", "Hm.\n\n"]
    rng = np.random.default_rng(0)
    while "\n\n" in said[-1]:
        said.append(next_thought(Situation(chain, said, 30 - len(said), "en"), 1.0, rng))
    assert any("5 - 29 = -24, C = -24." in text for text in said), said
    assert said[-1] == "The answer is \\boxed{-34}."


def test_a_right_episode_by_hand() -> None:
    chain = Chain(47, (("+", 38), ("-", 29)))
    said: list[str] = []
    while not said or "\n\n" in said[-1]:
        said.append(next_thought(Situation(chain, said, 16 - len(said), "en")))
    assert said == [
        "Sub-tasks: B, C.\n\n",
        "B = A + 38 = 47 + 38: 7 + 8 = 15, 4 + 3 + 1 = 8, B = 85.\n\n",
        "C = B - 29 = 85 - 29: 15 - 9 = 6, 8 - 2 - 1 = 5, C = 56.\n\n",
        "The answer is \\boxed{56}.",
    ]


def test_whoever_was_wrong_is_mended_from_there() -> None:
    chain = Chain(47, (("+", 38), ("-", 29)))
    said = ["B = 47 + 38 = 75.\n\n", "C = 75 - 29 = 46.\n\n"]
    assert progress(chain, said) == Progress((47, 75, 46), 0, False)
    mend = next_thought(Situation(chain, said, 9, "zh"))
    assert mend.startswith("等等，B = A + 38 = 47 + 38：") and kind_of(mend) is Factor.MEND
    assert progress(chain, [*said, mend]) == Progress((47, 85))
    at_once = next_thought(Situation(chain, said, 1, "en"))
    assert at_once.startswith("Wait, B =") and at_once.endswith("\\boxed{56}.") and at_once.count("\n\n") == 2


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("B = 85.", (47, 85)),
        ("So $B = 47 + 38 = 85$, and $C = 85 - 29 = 56$.", (47, 85, 56)),
        ("B=85", (47, 85)),
        ("B = 10 - 30 = -20.", (47, -20)),
        ("Maybe B = 85?", (47,)),
        ("No, B = 85 is wrong.", (47,)),
        ("C = 56.", (47,)),
        ("B = 47 + 38", (47,)),
        ("B = eighty-five", (47,)),
        ("A = 3. B = 85.", (47, 85)),
        ("B = 9999999999999", (47,)),
        ("B is 85", (47,)),
    ],
)
def test_claims_are_read_off_any_text(text: str, values: tuple[int, ...]) -> None:
    assert progress(Chain(47, (("+", 38), ("-", 29))), [text]).values == values


def test_saying_something_again_changes_nothing_and_something_else_takes_back_what_followed() -> None:
    chain = Chain(47, (("+", 38), ("-", 29)))
    both = ["B = 85.", "C = 56."]
    assert progress(chain, [*both, "As B = 85, fine."]).values == (47, 85, 56)
    assert progress(chain, [*both, "B = 84."]).values == (47, 84)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Maybe it is 7.", Factor.GUESS), ("也许是 7。", Factor.GUESS), ("My guess: 7", Factor.GUESS),
        ("No, 15 is too small.", Factor.REJECT), ("不对，太小了。", Factor.REJECT),
        ("But that cannot be.", Factor.REJECT),
        ("Alternatively, count backwards.", Factor.PLAN), ("另一个办法：倒着数。", Factor.PLAN),
        ("We need to find C.", Factor.GOAL), ("目标：求 C。", Factor.GOAL), ("The question asks for C.", Factor.GOAL),
        ("Wait, maybe 3 + 4 is 7.", Factor.MEND), ("等等，算错了。", Factor.MEND), ("Let me recheck.", Factor.MEND),
        ("Sub-tasks: B, C.", Factor.SPLIT), ("First find B, then C.", Factor.SPLIT), ("先算 B，再算 C。", Factor.SPLIT),
        ("3 + 4 = 7", None), ("", None), ("The answer is \\boxed{7}.", None), ("x" * 500 + " maybe", None),
    ],
)  # fmt: skip
def test_the_kind_is_read_off_the_text(text: str, kind: Factor | None) -> None:
    assert kind_of(text) is kind and kind_of(f"\n\n{text}\n\n") is kind


def test_kinds_are_counted() -> None:
    found = counted([Factor.GUESS, None, Factor.GUESS, Factor.MEND])
    assert found["factors"] == 4 and found["factors_guess"] == 2 and found["factors_mend"] == 1
    assert found["factors_plan"] == 0 and len(found) == 7


# -- the oracle -------------------------------------------------------------------------------------------------------


def test_the_oracle_by_hand() -> None:
    assert chance(2, 0, None, 1, 0.5) == 0.25 and chance(2, 2, None, 1, 0.5) == 1
    assert chance(2, 2, 0, 1, 0.5) == 0.25 and chance(2, 2, 0, 3, 0.5) == 0.5 * chance(2, 1, None, 2, 0.5)
    assert chance(1, 0, None, 2, 0.5) == 0.5 + 0.5 * 0.5  # it fails, and in its last turn notices
    long = [chance(3, 0, None, turns, 0.8) for turns in range(4, 30)]
    assert all(b >= a - 1e-12 for a, b in pairwise(long)), "more turns never harm"


def agent(env: MathEnv, skill: float, rng: np.random.Generator) -> bool:
    """The agent that the oracle speaks of, played from where ``env`` stands."""
    chain, language = env.task.data.chain, env.task.language
    while True:
        left, factors = env.max_turns - env.turn, env._state.factors
        so_far = progress(chain, factors)
        right = next_thought(Situation(chain, factors, left, language))
        if left == 1:
            steps = len(chain.steps) - (so_far.done if so_far.wrong is None else so_far.wrong)
            text = right if rng.random() < skill**steps else "\\boxed{0}"
        elif not factors:
            text = "Sub-tasks.\n\n"
        elif so_far.wrong is not None and rng.random() < skill:
            text = right
        elif so_far.done == len(chain.steps):
            text = f"\\boxed{{{so_far.values[-1]}}}"
        else:
            at = so_far.done
            value = chain.value(at, so_far.values[at])
            slips = so_far.wrong is None and rng.random() >= skill
            text = f"{'BCDEFG'[at]} = {value + slips}.\n\n"
        _, _, terminated, truncated, info = env.step(text)
        if terminated or truncated:
            return bool(info["success"])


@pytest.mark.parametrize("max_turns", [1, 2, 5, 9])
@pytest.mark.parametrize("said", [(), ("B = 0.\n\n",), ("Hm.\n\n",)])
def test_the_oracle_tells_what_its_agent_reaches(max_turns: int, said: tuple[str, ...]) -> None:
    if len(said) >= max_turns:
        return
    env = MathEnv(MathConfig(skill=0.7, max_turns=max_turns, verifier=Verifier.EXACT))
    env.reset(options={"task": env.tasks("test")[1]})
    for text in said:
        env.step(text)
    told, rng = env.oracle(), np.random.default_rng(0)
    reached = np.mean([agent(env.fork(), 0.7, rng) for _ in range(1500)])
    assert told is not None and abs(reached - told) < 4 * (told * (1 - told) / 1500) ** 0.5 + 1e-9
    assert abs(reached - told * 0.8) > 0.02 or told < 0.1, "the control"
