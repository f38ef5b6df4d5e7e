"""The scripted expert, and the demonstrator with systematic flaws that a small model is cloned from.

Invariants: a turn depends on the environment's state only; the way to a fact is that of the wiki's expert; without a
flaw it is right from every state that leaves it enough turns. The flawed one makes the wiki's mistakes, takes the
quotient for the remainder, and at times submits the fact itself; then it goes on as if it were right.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from agent_envs.actions import Action, Grammar
from agent_envs.research.tasks import OPERATORS, ResearchGold, Stage
from agent_envs.wiki.expert import Situation
from agent_envs.wiki.expert import expert_turn as wiki_turn
from agent_envs.wiki.tasks import Gold

_QUOTIENT = "//"
"""What the flawed expert takes the remainder for."""
_UNDONE = 0.25
"""Share of the flaw that leaves the computation out."""


def expert_action(
    now: Situation, printed: Sequence[str], wiki: Grammar, flaw: float = 0.0, rng: np.random.Generator | None = None
) -> Action:
    """The next action: one of the wiki's, PYTHON or SUBMIT. `rng` is needed when `flaw` > 0.

    ``printed`` is what each program printed, oldest first. Lines are saved only where ``now.save_all`` says that they
    count.
    """
    if not isinstance(now.gold, ResearchGold):
        return wiki.parse(wiki_turn(now if now.save_all else replace(now, turns_left=0), flaw, rng))
    stages = now.gold.stages
    done, number = _done(now.gold, printed, flawed=flaw > 0)
    if done == len(stages):
        return Action("SUBMIT", number)
    stage, later = stages[done], stages[done + 1 :]
    reserved = 1 + sum(len(one.hops) + 1 for one in later)
    time = now.turns_left - reserved if now.save_all else 0
    gold = Gold(now.gold.partition, stage.hops, str(stage.fact), (str(stage.fact),))
    action = wiki.parse(wiki_turn(replace(now, gold=gold, turns_left=time), flaw, rng))
    if action.name != "SUBMIT":
        return action
    if not action.args.isdecimal() or (flaw > 0 and rng is not None and rng.random() < flaw * _UNDONE):
        return action
    return replace(action, name="PYTHON", args=_code(stage, number, action.args, flaw, rng))


def _done(gold: ResearchGold, printed: Sequence[str], *, flawed: bool) -> tuple[int, str]:
    """(how many stages are computed, the number so far). The flawed one trusts whatever was printed."""
    if flawed:
        done = min(len(printed), len(gold.stages))
        return done, printed[-1] if done else ""
    results = [str(result) for result in gold.results]
    return next(((at + 1, results[at]) for at in reversed(range(len(results))) if results[at] in printed), (0, ""))


def _code(stage: Stage, number: str, fact: str, flaw: float, rng: np.random.Generator | None) -> str:
    """``x = 4821; x *= 37; x -= 411; print(x)``"""
    steps = [f"x = {number if stage.joined else fact}"]
    if stage.joined:
        steps.append(f"x {OPERATORS[stage.joined].sign}= {fact}")
    for operator, operand in stage.operations:
        sign = OPERATORS[operator].sign
        if sign == "%" and flaw > 0 and rng is not None and rng.random() < flaw:
            sign = _QUOTIENT
        steps.append(f"x {sign}= {operand}")
    return "; ".join([*steps, "print(x)"])
