"""Records of episodes, and the numbers of an update: averages for the live table, and costs of a task."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agents.rollout.play import Played
from agents.tree.episode import Episode, EpisodeId, Fault, Searched
from algorithms.formulas.maths import SAME
from runners.statistics.intervals import mean
from runners.statistics.turns import FIRST_TOKENS
from runners.training.credited import Credited
from runners.training.searching import search_record


def outcome_record(step: int, outcome: Episode | Fault, credited: Mapping[EpisodeId, Credited]) -> dict[str, Any]:
    """One line of episodes.jsonl. Token ids are the record, texts are for people; a fault has no turns."""
    job = outcome.job
    env = {"env": job.env} if job.env else {}
    whose = {"update": step, **env, "task": job.task.id, "sample": job.sample, "attempt": job.attempt}
    if isinstance(outcome, Fault):
        fault = {"kind": outcome.kind.value, "stage": outcome.stage.value, "message": outcome.message}
        return whose | {"fault": fault}
    return whose | episode_record(outcome, credited.get(job.id, Credited(None, None)))


def episode_record(episode: Episode, credited: Credited) -> dict[str, Any]:
    turns = range(len(episode.turns))
    values = credited.values or [None] * (len(turns) + 1)
    advantages = credited.advantages or [None for _ in turns]
    return {
        "language": episode.job.task.language,
        "level": episode.job.task.level,
        "success": episode.success,
        "reward": episode.reward,
        "metrics": episode.metrics,
        "system": episode.prompt[0],
        "user": episode.prompt[1],
        "prompt_tokens": episode.root.tokens,
        "oracle": episode.root.oracle,
        **({} if episode.forked_from is None else {"forked_from": episode.forked_from, "inherited": episode.inherited}),
        "turns": [
            {
                "action": text,
                "observation": seen,
                "tokens": action.tokens,
                "logp": [round(x, 6) for x in action.logp],
                "entropy": [round(x, 6) for x in action.entropy],
                "reward": action.reward,
                "value": _rounded(value),
                "advantage": _rounded(advantage),
                "version": action.version,
                "observation_tokens": state.tokens,
                "terminated": state.terminated,
                "truncated": state.truncated,
                "oracle": state.oracle,
                **({} if action.label is None else {"label": action.label}),
            }
            for (action, state), (text, seen), value, advantage in zip(
                episode.turns, episode.texts, values[:-1], advantages, strict=True
            )
        ],
        "end_value": _rounded(values[-1]),
        **({"search": search_record(episode)} if isinstance(episode, Searched) else {}),
    }


def _rounded(x: float | None) -> float | None:
    return None if x is None else round(x, 6)


def episode_stats(played: Played, group: int) -> dict[str, float]:
    """The averages that the live table shows; what broke is counted, and is part of no average."""
    episodes = played.episodes
    actions = max(1, sum(len(e.turns) for e in episodes))
    stats = {
        "success": mean([float(e.success or 0) for e in episodes]),
        "reward": mean([e.reward for e in episodes]),
        "reward_std": float(np.std([e.reward for e in episodes])) if episodes else 0.0,
        "turns": mean([float(len(e.turns)) for e in episodes]),
        "invalid": sum(e.invalid for e in episodes) / actions,
        "tool_errors": sum(e.errors for e in episodes) / actions,
        "truncated": mean([float(e.end.truncated) for e in episodes]),
        "faults": float(len(played.faults)),
        "dropped": float(len(played.outcomes) - len(episodes)),
        "entropy": mean([x for e in episodes for action, _ in e.turns for x in action.entropy]),
    }
    if group > 1:
        rewards: dict[str, list[float]] = {}
        for e in episodes:
            rewards.setdefault(e.job.task_id, []).append(e.reward)
        stats["zero_variance"] = mean([float(np.ptp(of_task) <= SAME) for of_task in rewards.values()])
    return stats


def stats_by_env(played: Played, group: int) -> dict[str, float]:
    """`episode_stats` of each of several environments, as ``ENV/NAME``; nothing where there is only one."""
    stats: dict[str, float] = {}
    for env in sorted({outcome.job.env for outcome in played.outcomes} - {""}):
        mine = Played(
            [outcome for outcome in played.outcomes if outcome.job.env == env],
            [fault for fault in played.faults if fault.job.env == env],
        )
        stats |= {f"{env}/{name}": x for name, x in episode_stats(mine, group).items()}
    return stats


def group_costs(episodes: Sequence[Episode]) -> dict[str, float]:
    """Forks, shared tokens, calls and tokens per task, and the rise of the entropy, by name.

    ``shared_tokens``: share of the sampled tokens on the episodes' paths that forks took over. ``calls_per_task``:
    actions that ended no episode by what they did. ``entropy_rise_K``: mean entropy of the first K tokens after an
    observation, as a multiple of that of the first turns; not there where the latter is 0 or nothing follows.
    """
    tasks = max(1, len({e.job.task_id for e in episodes}))
    sampled = sum(e.sampled_tokens for e in episodes)
    whole = sum(len(action.tokens) for e in episodes for action, _ in e.turns)
    costs = {
        "forks": float(sum(e.forked_from is not None for e in episodes)),
        "shared_tokens": 1 - sampled / max(1, whole),
        "calls_per_task": sum(not state.terminated for e in episodes for _, state in e.own_turns) / tasks,
        "sampled_tokens_per_task": sampled / tasks,
    }
    for k in FIRST_TOKENS:
        first = mean([x for e in episodes for action, _ in e.turns[:1] if not e.inherited for x in action.entropy[:k]])
        later = [x for e in episodes for action, _ in e.turns[max(1, e.inherited) :] for x in action.entropy[:k]]
        if later and first > 0:
            costs[f"entropy_rise_{k}"] = mean(later) / first
    return costs
