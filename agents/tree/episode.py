"""Jobs, episodes and faults: one attempt at one task, and its record.

Invariant: the chain of nodes under ``Episode.root`` holds exactly the tokens that the engine read and sampled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

from agent_envs.core import Task
from agent_envs.isolation.faults import EnvFault, FaultKind, Stage
from agents.tree.tree import Kind, Node

EpisodeId = tuple[str, int, int]
"""(`Job.task_id`, sample, attempt)."""


@dataclass(frozen=True)
class Job:
    """One episode to be played. All its randomness derives from (run seed, task, sample, attempt)."""

    task: Task
    sample: int = 0
    """Which of this task's episodes it is, counted over the whole run."""
    run_seed: int = 0
    attempt: int = 0
    """How often its environment broke before."""
    env: str = ""
    """Name of its environment where several are played together; empty where there is only one. It is no part of the
    seed: an episode is drawn alike in both."""

    @property
    def task_id(self) -> str:
        """Identity of the task: its id, after the name of its environment where there is one."""
        return f"{self.env}/{self.task.id}" if self.env else self.task.id

    @property
    def id(self) -> EpisodeId:
        """Unique within a run."""
        return self.task_id, self.sample, self.attempt

    def group(self, size: int) -> tuple[str, int]:
        """Identity of the group of ``size`` episodes of its task that it belongs to."""
        return self.task_id, self.sample // size

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
    def over(self) -> bool:
        return self.end.terminated or self.end.truncated

    @property
    def reward(self) -> float:
        return sum(action.reward for action, _ in self.turns)

    @property
    def success(self) -> bool | None:
        return self.end.success

    @property
    def sampled_tokens(self) -> int:
        return sum(len(action.tokens) for action, _ in self.own_turns)

    def fork(self, job: Job, turns: int | None = None) -> Episode:
        """The same episode up to here, or its first ``turns`` turns, in nodes of its own, as ``job``."""
        taken, texts = self.turns[:turns], self.texts[:turns]
        twin = replace(self, job=job, root=replace(self.root, children=[]), turns=[], texts=texts)
        twin.forked_from, twin.inherited = self.job.sample, len(taken)
        for turn in taken:
            action, state = (replace(node, children=[]) for node in turn)
            twin.end.add(action).add(state)
            twin.turns.append((action, state))
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """The tree as a list: pickle would go down a chain node by node, and not far enough for many turns."""
        nodes = list(self.root.walk())
        place = {id(node): i for i, node in enumerate(nodes)}
        flat = [(replace(node, children=[]), [place[id(child)] for child in node.children]) for node in nodes]
        return vars(self) | {"root": flat, "turns": [(place[id(a)], place[id(s)]) for a, s in self.turns]}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        nodes = [node for node, _ in state["root"]]
        for node, children in state["root"]:
            node.children = [nodes[i] for i in children]
        turns = [(nodes[action], nodes[following]) for action, following in state["turns"]]
        vars(self).update(state, root=nodes[0], turns=turns)


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


@dataclass
class Served(Episode):
    """An episode of a served model: texts, rewards and ends. Only the server knows the tokens, so its
    nodes hold none and make no tree."""

    requests: int = 0
    prompt_tokens: int = 0
    """Tokens that the server read, over all requests."""
    completion_tokens: int = 0
    ended: str = ""
    """Why the endpoint would not go on: "inspected", or "context" where the conversation is too long; else empty."""

    @property
    def sampled_tokens(self) -> int:
        return self.completion_tokens
