r"""The expert of problems whose solution is only known as a text: it tells that text, and then the answer.

Invariant: what it says next depends on how many of the solution's thoughts stand at the beginning of the chain; from
any state it ends with the right answer. The flawed one gets the last digit of the answer wrong.
"""

from collections.abc import Sequence

import numpy as np

from agent_envs.actions import BLANK
from agent_envs.math.problem import Problem

_ANSWER = {"en": "The answer is \\boxed{{{}}}.", "zh": "答案是 \\boxed{{{}}}。"}


def tell(
    problem: Problem,
    factors: Sequence[str],
    turns_left: int,
    language: str,
    flaw: float,
    rng: np.random.Generator | None,
) -> str:
    """The next turn."""
    if flaw > 0 and rng is None:
        raise ValueError("an expert with a flaw needs an rng")
    done = 0
    for thought, wanted in zip(factors, problem.solution, strict=False):
        if thought.strip() != wanted:
            break
        done += 1
    # Where other thoughts came between, the rest of the solution would hang in the air.
    if done == len(factors) and done < len(problem.solution) and turns_left > 1:
        return problem.solution[done] + BLANK
    wrong = rng is not None and bool(rng.random() < flaw)
    return _ANSWER[language].format(mistaken(problem.gold) if wrong else problem.gold)


def mistaken(gold: str) -> str:
    """Another answer: the last digit is one too large; what has no digit gets one."""
    at = max((i for i, char in enumerate(gold) if char in "0123456789"), default=None)
    return gold + "1" if at is None else f"{gold[:at]}{(int(gold[at]) + 1) % 10}{gold[at + 1 :]}"
