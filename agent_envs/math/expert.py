r"""The scripted expert of generated problems, and the demonstrator with a mistake that a small model is cloned from.

Invariants: a thought depends on the state only (and on ``rng``); without a flaw the expert is right from every state:
where the chain so far is wrong, it fixes the first mistake and goes on from there. The flawed one forgets what is
carried or borrowed, and seldom notices. Its demonstrations hold all six kinds of thoughts: a guess adds without
carrying; where something is carried, it is rejected, and the step is then done rightly, or it is taken for the result.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agent_envs.actions import BLANK
from agent_envs.math.columns import carries, columns
from agent_envs.math.problem import LETTERS, Chain
from agent_envs.math.progress import Progress, progress
from agent_envs.math.thought_kinds import Factor, kind_of

_GOAL, _PLAN, _GUESS = 0.5, 0.3, 0.3
"""How often a demonstrator says what need not be said."""
_NOTICE = 0.25
"""How often one with a flaw notices what it has just done."""

_TEXTS = {
    "en": {
        "goal": "Goal: the value of {}.",
        "split": "Sub-tasks: {}.",
        "then": ", ",
        "plan": "One way: ones first, then the rest.",
        "guess": "Maybe {} = {} = {}?",
        "carry": "No, {} carries.",
        "borrow": "No, {} < {} borrows.",
        "accept": "Yes, {} = {}.",
        "step": "{} = {} {} {} = {} {} {}: {}, {} = {}.",
        "mend": "Wait, {} = {} {} {} = {} {} {}: {}, {} = {}.",
        "answer": "The answer is \\boxed{{{}}}.",
        "comma": ", ",
    },
    "zh": {
        "goal": "目标：{} 的值。",
        "split": "拆解：{}。",
        "then": "、",
        "plan": "一个办法：先算个位，后算其余。",
        "guess": "也许 {} = {} = {}？",
        "carry": "不对，{} 要进位。",
        "borrow": "不对，{} < {} 要借位。",
        "accept": "是的，{} = {}。",
        "step": "{} = {} {} {} = {} {} {}：{}，{} = {}。",
        "mend": "等等，{} = {} {} {} = {} {} {}：{}，{} = {}。",
        "answer": "答案是 \\boxed{{{}}}。",
        "comma": "，",
    },
}


@dataclass(frozen=True)
class Situation:
    """What the expert sees."""

    chain: Chain
    factors: Sequence[str]
    """The thoughts so far."""
    turns_left: int
    """This one included."""
    language: str


def next_thought(now: Situation, flaw: float = 0.0, rng: np.random.Generator | None = None) -> str:
    """The next turn; without `rng` the shortest way after a split, with it a demonstration. `flaw` needs it."""
    if flaw > 0 and rng is None:
        raise ValueError("an expert with a flaw needs an rng")
    so_far = progress(now.chain, now.factors)
    if now.turns_left == 1:
        return _all_at_once(now, so_far)
    wrong = so_far.wrong
    if wrong is not None and (flaw == 0 or (so_far.fresh and _draw(rng, _NOTICE))):
        return _step(now, so_far, wrong, "mend") + BLANK
    if so_far.done == len(now.chain.steps):
        return _say(now, "answer", so_far.values[-1])
    needed = len(now.chain.steps) - so_far.done + 1
    spare = now.turns_left > needed
    kinds = [kind_of(text) for text in now.factors]
    guessed = kinds[-1:] == [Factor.GUESS]
    if spare and not now.factors and _draw(rng, _GOAL):
        return _say(now, "goal", LETTERS[len(now.chain.steps)]) + BLANK
    if (
        spare
        and so_far.done == 0
        and not guessed
        and Factor.SPLIT not in kinds
        and (not now.factors or rng is not None)
    ):
        parts = LETTERS[1 : len(now.chain.steps) + 1]
        return _say(now, "split", _TEXTS[now.language]["then"].join(parts)) + BLANK
    if spare and so_far.done == 0 and not guessed and Factor.PLAN not in kinds and _draw(rng, _PLAN):
        return _say(now, "plan") + BLANK
    return _work(now, so_far, kinds[-1] if kinds else None, spare, flaw, rng) + BLANK


def _work(
    now: Situation,
    so_far: Progress,
    last: Factor | None,
    spare: bool,
    flaw: float,
    rng: np.random.Generator | None,
) -> str:
    """A guess at the next step, what comes of one, or the step."""
    at = so_far.done
    a, (sign, b) = so_far.values[at], now.chain.steps[at]
    tempting = carries(a, sign, b)
    quick = columns(a, sign, b, forget=True)[1]
    if last is Factor.GUESS and tempting and spare:
        if _draw(rng, flaw):
            return _say(now, "accept", LETTERS[at + 1], quick)
        if sign == "-":
            return _say(now, "borrow", *_first_borrow(a, b))
        return _say(now, "carry", next(row for row in columns(a, sign, b)[0] if int(row.rpartition(" ")[2]) > 9))
    room = now.turns_left > len(now.chain.steps) - at + 2  # for the guess and its rejection
    if last not in (Factor.GUESS, Factor.REJECT) and room and _draw(rng, _GUESS):
        return _say(now, "guess", LETTERS[at + 1], f"{a} {sign} {b}", quick)
    return _step(now, so_far, at, "step", forget=tempting and last is not Factor.REJECT and _draw(rng, flaw))


def _step(now: Situation, so_far: Progress, at: int, how: str, *, forget: bool = False) -> str:
    a, (sign, b) = so_far.values[at], now.chain.steps[at]
    rows, value = columns(a, sign, b, forget=forget)
    letter, before = LETTERS[at + 1], LETTERS[at]
    worked = _TEXTS[now.language]["comma"].join(rows)
    return _say(now, how, letter, before, sign, b, a, sign, b, worked, letter, value)


def _all_at_once(now: Situation, so_far: Progress) -> str:
    """The last turn: all that is left to do, and the answer."""
    text, values = [], list(so_far.values)
    if so_far.wrong is not None:
        del values[so_far.wrong + 1 :]
    for at in range(len(values) - 1, len(now.chain.steps)):
        text.append(_step(now, Progress(tuple(values)), at, "mend" if at == so_far.wrong else "step"))
        values.append(now.chain.value(at, values[at]))
    return BLANK.join([*text, _say(now, "answer", values[-1])])


def _say(now: Situation, key: str, *values: object) -> str:
    return _TEXTS[now.language][key].format(*values)


def _first_borrow(a: int, b: int) -> tuple[int, int]:
    """The lowest digits of which the upper one is too small."""
    return next((int(x), int(y)) for x, y in zip(str(a)[::-1], str(b)[::-1], strict=False) if x < y)


def _draw(rng: np.random.Generator | None, chance: float) -> bool:
    return rng is not None and bool(rng.random() < chance)
