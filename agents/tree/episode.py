"""Jobs, episodes and faults: one attempt at one task, and its record.

Invariant: the chain of nodes under ``Episode.root`` holds exactly the tokens that the engine read and sampled.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import blake2b

from agent_envs.core import Task
from agent_envs.isolation.faults import EnvFault, FaultKind, Stage
from agents.tree.tree import Kind, Node

EpisodeId = tuple[str, int, int]
"""(task, sample, attempt)."""


@dataclass(frozen=True)
class Job:
    """One episode to be played. All its randomness derives from (run seed, task, sample, attempt)."""

    task: Task
    sample: int = 0
    """Which of this task's episodes it is, counted over the whole run."""
    run_seed: int = 0
    attempt: int = 0
    """How often its environment broke before."""

    @property
    def id(self) -> EpisodeId:
        """Unique within a run."""
        return self.task.id, self.sample, self.attempt

    def seed(self, *purpose: object) -> int:
        """A 63-bit seed for one purpose ("env", or the number of a turn)."""
        attempt = ("attempt", self.attempt) if self.attempt else ()
        key = "\x1f".join(map(str, (self.run_seed, self.task.id, self.sample, *attempt, *purpose)))
        return int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "big") >> 1


@dataclass(frozen=True)
class Fault:
    """An attempt at an episode that its environment broke. It teaches nothing: it is neither a reward nor a failure."""

    job: Job
    kind: FaultKind
    stage: Stage
    message: str

    def __str__(self) -> str:
        return f"{self.kind} in {self.stage}: {self.message}"

    @classmethod
    def of(cls, job: Job, error: EnvFault) -> Fault:
        return cls(job, error.kind, error.stage, error.message)


@dataclass
class Episode:
    """What one agent did on one task: the chain of nodes and what a person wants to read of it."""

    job: Job
    root: Node
    turns: list[tuple[Node, Node]] = field(default_factory=list)
    """(action, next state) pairs, in order."""
    texts: list[tuple[str, str]] = field(default_factory=list)
    """(action text, observation text) pairs."""
    prompt: tuple[str, str] = ("", "")
    """System and user message."""
    invalid: int = 0
    """Actions that the environment could not read."""
    errors: int = 0
    """Actions that the environment answered with an error (invalid ones, missing pages, …)."""
    metrics: dict[str, float] = field(default_factory=dict)
    forked_from: int | None = None
    """The sample that took its first turns, or None for an episode that began at the root."""
    inherited: int = 0
    """How many turns those are."""

    @property
    def own_turns(self) -> list[tuple[Node, Node]]:
        """The turns that were taken for this episode."""
        return self.turns[self.inherited :]

    @property
    def end(self) -> Node:
        """The state in which the episode stands."""
        return self.turns[-1][1] if self.turns else self.root

    @property
    def reward(self) -> float:
        return sum(action.reward for action, _ in self.turns)

    @property
    def success(self) -> bool | None:
        return self.end.success

    @property
    def sampled_tokens(self) -> int:
        return sum(len(action.tokens) for action, _ in self.own_turns)

    def fork(self, job: Job) -> Episode:
        """The same episode up to here, in nodes of its own, as ``job``."""
        twin = replace(self, job=job, root=replace(self.root, children=[]), turns=[], texts=list(self.texts))
        twin.forked_from, twin.inherited = self.job.sample, len(self.turns)
        for turn in self.turns:
            action, state = (replace(node, children=[]) for node in turn)
            twin.end.add(action).add(state)
            twin.turns.append((action, state))
        return twin


@dataclass
class Searched(Episode):
    """A whole search. ``root`` is its tree, and the turns are those of the path that it settled for."""

    rounds: int = 0
    """How often states were expanded together."""

    @property
    def own_turns(self) -> list[tuple[Node, Node]]:
        """Every (action, next state) of the tree, depth first."""
        return [(node, node.children[0]) for node in self.root.walk() if node.kind is Kind.ACTION]

    @property
    def sampled_tokens(self) -> int:
        return sum(len(action.tokens) * action.count for action, _ in self.own_turns)

    @property
    def nodes(self) -> int:
        """Actions that were sampled."""
        return sum(action.count for action, _ in self.own_turns)

    @property
    def success(self) -> bool | None:
        return bool(self.end.success)
