"""Costs of a task's episodes together, and the entropy after an observation.

Invariant: a turn that forks took over was taken once. Faulted episodes never get here.
"""

from collections.abc import Sequence

from agents.tree.episode import Episode
from runners.statistics.intervals import mean

FIRST = (10, 20, 50)
"""Numbers of first tokens of a turn whose entropy is averaged."""


def group_costs(episodes: Sequence[Episode]) -> dict[str, float]:
    """Forks, shared tokens, calls and tokens per task, and the rise of the entropy, by name.

    ``shared_tokens``: share of the sampled tokens on the episodes' paths that forks took over. ``calls_per_task``:
    actions that ended no episode by what they did. ``entropy_rise_K``: mean entropy of the first K tokens after an
    observation, as a multiple of that of the first turns; not there where the latter is 0.
    """
    tasks = max(1, len({e.job.task.id for e in episodes}))
    sampled = sum(e.sampled_tokens for e in episodes)
    whole = sum(len(action.tokens) for e in episodes for action, _ in e.turns)
    costs = {
        "forks": float(sum(e.forked_from is not None for e in episodes)),
        "shared_tokens": 1 - sampled / max(1, whole),
        "calls_per_task": sum(not state.terminated for e in episodes for _, state in e.own_turns) / tasks,
        "sampled_tokens_per_task": sampled / tasks,
    }
    for k in FIRST:
        first = mean([x for e in episodes for action, _ in e.turns[:1] if not e.inherited for x in action.entropy[:k]])
        later = mean([x for e in episodes for action, _ in e.turns[max(1, e.inherited) :] for x in action.entropy[:k]])
        if first > 0:
            costs[f"entropy_rise_{k}"] = later / first
    return costs
