"""Finished episodes that tests have judged."""

from collections.abc import Sequence

from agent_envs.core import Task
from agents.tree import Kind, Node
from agents.tree.episode import Episode, Job


def episode(
    *turns: tuple[str, str],
    oracle: Sequence[float | None] = (),
    rewards: Sequence[float] = (),
    truncated: bool = False,
    name: str = "t",
    sample: int = 0,
    run_seed: int = 0,
) -> Episode:
    """An episode of (action, observation) texts; an action's tokens are its place and length."""
    told = [*oracle, *[None] * (len(turns) + 1 - len(oracle))]
    made = Episode(Job(Task(name, "train", "do it"), sample, run_seed), Node(Kind.STATE, (1, 2), oracle=told[0]))
    made.prompt = ("you are an agent", "do it")
    for k, (action, observation) in enumerate(turns):
        last = k == len(turns) - 1
        said = Node(Kind.ACTION, (3 + k, 7), reward=rewards[k] if rewards else 0.0, version=0)
        state = Node(Kind.STATE, () if last else (5,), oracle=told[k + 1])
        if last:
            state.terminated, state.truncated, state.success = not truncated, truncated, not truncated
        made.end.add(said).add(state)
        made.turns.append((said, state))
        made.texts.append((action, observation))
    return made
