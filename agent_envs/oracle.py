"""The exact chance of success of an agent of known skill, without a simulation.

The agent: in every turn it makes the expert's next turn with probability `skill`, and else wastes the turn without
harm. Like the expert it saves evidence while it has turns to spare, and goes straight on when it has none.

    V(i, t) = skill V(i + 1, t - 1) + (1 - skill) V(i, t - 1)     before step i, with t turns left
    V(i, t) = V(i + 1, t)                                         at a saving step that there is no turn for
    V(n, t) = 1,  V(i, 0) = 0 for i < n
"""

from collections.abc import Sequence


def chance(saves: Sequence[bool], turns: int, skill: float) -> float:
    """V(0, turns). `saves` are the expert's steps up to the answer, True where one only saves evidence."""
    after, needed = [1.0] * (turns + 1), 0
    for saving in reversed(saves):
        needed += not saving
        now = [0.0] * (turns + 1)
        for t in range(turns + 1):
            if saving and t <= needed:
                now[t] = after[t]
            elif t:
                now[t] = skill * after[t - 1] + (1 - skill) * now[t - 1]
        after = now
    return after[turns]
