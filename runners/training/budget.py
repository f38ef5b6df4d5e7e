"""The budget of a run in updates or environment steps, and the share of it that is used up.

Invariant: an environment step is a turn that was played to the end of its episode; a turn that several branches of a
task went through was taken once. Actions of a search that are the same were sampled each, and taken once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agents.tree.episode import Episode, EpisodeId


@dataclass
class Budget:
    """Counts what is played. A run ends after ``env_steps`` of them, or, where that is 0, after ``updates`` updates."""

    updates: int
    env_steps: int = 0
    steps: int = 0
    """Environment steps so far."""
    tokens: int = 0
    """Tokens sampled so far."""

    def add(self, episodes: Sequence[Episode], before: Mapping[EpisodeId, int] | None = None) -> int:
        """Counts what was played and returns its tokens; ``before``: turns of an episode that were counted already."""
        seen = before or {}
        turns = (turn for episode in episodes for turn in episode.own_turns[seen.get(episode.job.id, 0) :])
        actions = {id(action): len(action.tokens) * action.count for action, _ in turns}
        self.steps += len(actions)
        tokens = sum(actions.values())
        self.tokens += tokens
        return tokens

    def used(self, update: int) -> float:
        """Share of the budget that is used up after ``update`` updates; above 1 where the last one took more."""
        return self.steps / self.env_steps if self.env_steps else update / self.updates

    def over(self, update: int) -> bool:
        return self.steps >= self.env_steps if self.env_steps else update >= self.updates

    def state(self) -> dict[str, int]:
        return {"steps": self.steps, "tokens": self.tokens}

    def load(self, state: Mapping[str, int]) -> None:
        self.steps, self.tokens = state["steps"], state["tokens"]
