"""Records of episodes, and the averages of an update for the live table."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from agents.rollout.play import Played
from agents.tree.episode import Episode, EpisodeId, Fault, Searched
from runners.statistics.intervals import mean
from runners.training.learner import Credited
from runners.training.searching import search_record


def outcome_record(step: int, outcome: Episode | Fault, credited: Mapping[EpisodeId, Credited]) -> dict[str, Any]:
    """One line of episodes.jsonl. Token ids are the record, texts are for people; a fault has no turns."""
    if isinstance(outcome, Fault):
        return fault_record(step, outcome)
    return episode_record(step, outcome, credited.get(outcome.job.id, Credited(None, None)))


def fault_record(step: int, fault: Fault) -> dict[str, Any]:
    task, sample, attempt = fault.job.id
    return {
        "update": step,
        "task": task,
        "sample": sample,
        "attempt": attempt,
        "fault": {"kind": fault.kind.value, "stage": fault.stage.value, "message": fault.message},
    }


def episode_record(step: int, episode: Episode, credited: Credited) -> dict[str, Any]:
    turns = range(len(episode.turns))
    values = credited.values or [None] * (len(turns) + 1)
    advantages = credited.advantages or [None for _ in turns]
    return {
        "update": step,
        "task": episode.job.task.id,
        "sample": episode.job.sample,
        "attempt": episode.job.attempt,
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
            rewards.setdefault(e.job.task.id, []).append(e.reward)
        stats["zero_variance"] = mean([float(np.ptp(of_task) <= 1e-8) for of_task in rewards.values()])
    return stats
