"""Grading by the data set's own scorer, in a process that may be killed."""

from agent_envs.isolation.grader import Limits, shared
from agent_envs.reasoning_gym.config import ReasoningGymConfig
from agent_envs.reasoning_gym.tasks import Entry


def right(config: ReasoningGymConfig, entry: Entry, answer: str) -> bool | None:
    """Whether ``answer`` gets full marks; None when it cannot be scored."""
    if answer == entry.answer:
        return True
    # Below what a step may take by default, 30 s: an answer must not be able to break its environment.
    limits = Limits(cpu_seconds=config.score_seconds, seconds=max(20.0, 8.0 * config.score_seconds))
    scorer = shared("agent_envs.reasoning_gym.entries:score", limits)
    reply = scorer.call(config.dataset, config.seed, entry.number, entry.question, answer)
    return reply.value >= 1 if type(reply.value) is float else None
