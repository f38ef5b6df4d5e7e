"""The reward of a turn, and the exact value of a state for an agent of known skill."""


def reward(right: bool, words: int) -> float:
    """The share of a word in the whole, for one that was said rightly."""
    return right / words


def chance(left: int, turns: int, skill: float, *, flawless: bool) -> float:
    """Chance that an agent says all ``left`` words rightly within ``turns``; none after a mistake."""
    return skill**left if flawless and left <= turns else 0.0
