"""The exact chance of success of an agent of known skill, without a simulation.

The agent makes the expert's next turn with probability `skill`, and else wastes the turn without harm; like the expert
it looks at the checks first if it has a turn to spare. Files that are right at the last turn are enough.
"""

from agent_envs.code.expert import Situation, plan
from agent_envs.oracle import chance as chance_of


def chance(now: Situation, skill: float) -> float | None:
    """The chance of success from here; None for a task without a known solution."""
    if not now.task.solution:
        return None
    return chance_of([step.optional for step in plan(now)], now.left, skill)
