r"""The chance of success of an agent of a known skill, from any state of a generated problem.

That agent begins with a thought that splits the task; then it takes step after step, each rightly with the chance p;
where a step of its chain is wrong it notices with the chance p, and does that one again, rightly, and else goes on; it
answers when it believes to be through, or, not having noticed, wrongly; and in its last turn it does at once all that
is left. With n steps, d of them done, the first mistake at w (none: -), t turns left::

    V(d, -, 1) = p^(n-d)                   V(d, w, 1) = p p^(n-w-1)
    V(n, -, t) = 1                         V(n, w, t) = p V(w+1, -, t-1)
    V(d, -, t) = p V(d+1, -, t-1) + (1-p) V(d+1, d, t-1)
    V(d, w, t) = p V(w+1, -, t-1) + (1-p) V(d+1, w, t-1)
"""

from functools import lru_cache


@lru_cache(maxsize=1 << 16)
def chance(steps: int, done: int, wrong: int | None, turns: int, skill: float) -> float:
    """V of the module's docstring; ``turns`` is at least 1."""
    if turns == 1:
        return float(skill ** (steps - done)) if wrong is None else float(skill ** (steps - wrong))
    if wrong is not None:
        mended = skill * chance(steps, wrong + 1, None, turns - 1, skill)
        unseen = 0.0 if done == steps else chance(steps, done + 1, wrong, turns - 1, skill)
        return mended + (1 - skill) * unseen
    if done == steps:
        return 1.0
    right, slip = (chance(steps, done + 1, first, turns - 1, skill) for first in (None, done))
    return skill * right + (1 - skill) * slip
