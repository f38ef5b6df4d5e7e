"""The reward of a coding task: a pure function of the checks that pass.

The reward is the share of the hidden checks that pass. Where some of them passed at the beginning, as in a file with
one bug, it is the share of the rest, less what no longer passes: nothing is earned by leaving things as they are, nor
by a change that changes nothing.
"""

from collections.abc import Callable


def reward(passed: int, total: int, at_start: Callable[[], int]) -> float:
    """max(0, (passed - start) / (total - start)), and 1 where all pass; ``at_start`` is asked only where it matters."""
    if not 0 <= passed <= total:
        raise ValueError(f"{passed} of {total} checks cannot pass")
    if passed == total:
        return 1.0
    if passed == 0:
        return 0.0
    start = at_start()
    return max(0.0, (passed - start) / (total - start)) if start < total else 0.0
