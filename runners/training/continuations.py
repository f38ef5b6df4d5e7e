"""Monte Carlo values: the policy plays on from every state of its episodes, several times from each [VinePPO,
arXiv 2410.01679].

Invariant: a continuation has seeds of its own, that follow from its episode, its turn and its number; so it depends
neither on the other episodes nor on the number of workers. It begins in a fresh environment, in which what was done is
done again. One that breaks is lost: it is not played again, and the mean is that of the others.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from statistics import stdev

from rich.console import Console

from agents.engine import SamplingSettings
from agents.rollout.play import Played
from agents.rollout.quota import Quota
from agents.tree import Node
from agents.tree.episode import Episode
from agents.tree.merge import Tree
from algorithms.base import Needs
from runners.reporting.progress import evaluating
from runners.statistics.intervals import mean
from runners.training.budget import Budget
from runners.workers.controller import Controller

MOST_TURNS = 1 << 20
"""More than any episode has."""


@dataclass(frozen=True)
class Estimate:
    """The value of a state by continuations from it."""

    node: Node
    mean: float | None
    """Mean return; None where every continuation broke."""
    error: float | None
    """Its standard error; None with fewer than two returns."""


@dataclass(frozen=True)
class Continued:
    """What came of continuations."""

    played: Played
    estimates: Sequence[Estimate]
    """Of every state in which a turn was taken."""
    seconds: float
    """On the wall."""
    processor: float
    """Of this process on the processor."""

    @property
    def error(self) -> float | None:
        """Mean standard error of a value; None where no state has two returns."""
        errors = [one.error for one in self.estimates if one.error is not None]
        return mean(errors) if errors else None

    def costs(self, budget: Budget, *, counted: bool) -> dict[str, float]:
        """What they cost, by name; where they are ``counted``, the budget of the run counts their turns and tokens."""
        budget = budget if counted else Budget(0)
        steps = budget.steps
        tokens = budget.add(self.played.episodes)
        free = {"uncounted_seconds": self.seconds, "uncounted_processor": self.processor}
        return {
            "continuations": float(len(self.played.outcomes)),
            "continuation_steps": float(budget.steps - steps),
            "continuation_tokens": float(tokens),
            "continuation_faults": float(len(self.played.faults)),
            **({} if self.error is None else {"continuation_error": self.error}),
            "seconds_continuations": self.seconds,
            **({} if counted else free),
        }


@dataclass(frozen=True)
class Continuations:
    """Plays as many episodes on from every state as an algorithm ``needs``, and values it at their mean return."""

    controller: Controller
    sampling: SamplingSettings
    needs: Needs
    attempt: int
    """Attempt of their jobs, from the times on that an environment that broke is tried again: these never are. Other
    attempts have other seeds."""
    console: Console | None = None
    """Where a bar is shown; None: nowhere."""

    def play(self, trees: Sequence[Tree]) -> Continued:
        """Notes the values in the states of ``trees`` and of their episodes (`Node.continued`)."""
        continued = self.estimate(trees)
        for one in continued.estimates:
            one.node.continued = one.mean
        for tree in trees:
            for episode, path in tree.paths:
                episode.root.continued = tree.root.continued
                for (_, state), (_, node) in zip(episode.turns, path, strict=True):
                    state.continued = node.continued
        return continued

    def estimate(self, trees: Sequence[Tree]) -> Continued:
        """The values of the states of ``trees``, which stay as they are."""
        began, processor_began = time.monotonic(), time.process_time()
        begun, states, count = [], [], self.needs.continuations
        for node, episode, turns in open_states(trees):
            states.append(node)
            begun += [self.prefix(episode, turns, i) for i in range(count)]
        quota = Quota(1, len(begun), begun=tuple(begun))
        with evaluating(self.console, len(begun), doing="playing on") if self.console else nullcontext() as advance:
            played = self.controller.play([one.job for one in begun], self.sampling, on_end=advance, quota=quota)
        estimates = []
        for i, node in enumerate(states):
            mine = played.outcomes[i * count : (i + 1) * count]
            returns = [self.rest(one) for one in mine if isinstance(one, Episode)]
            error = stdev(returns) / math.sqrt(len(returns)) if len(returns) > 1 else None
            estimates.append(Estimate(node, mean(returns) if returns else None, error))
        spent = time.monotonic() - began, time.process_time() - processor_began
        return Continued(played, estimates, *spent)

    def prefix(self, episode: Episode, turns: int, number: int) -> Episode:
        """The first turns of an episode, as the ``number``-th continuation begins."""
        # Samples of the run count up from 0.
        sample = -1 - ((episode.job.sample * MOST_TURNS + turns) * self.needs.continuations + number)
        return episode.fork(replace(episode.job, sample=sample, attempt=self.attempt), turns)

    def rest(self, episode: Episode) -> float:
        """The discounted return of what was played on."""
        return sum(self.needs.discount**i * action.reward for i, (action, _) in enumerate(episode.own_turns))


def open_states(trees: Sequence[Tree]) -> Iterator[tuple[Node, Episode, int]]:
    """Every state in which a turn was taken, with an episode that went through it and the turns that led there."""
    for tree in trees:
        seen: set[int] = set()
        for episode, path in tree.paths:
            for turns, node in enumerate((tree.root, *(state for _, state in path[:-1]))):
                if id(node) not in seen:
                    seen.add(id(node))
                    yield node, episode, turns
