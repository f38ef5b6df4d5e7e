"""A rollout whose episodes fork while they are played.

Invariants: a task's episodes go in rounds: who of them forks is decided when all that are in play have ended a turn
(and have begun the next, where that is what is measured), so neither timing nor other tasks matter. A fork is a copy of
the episode's record, of its environment and of its session, cut where its turn begins; from there on it samples by the
seeds of its own job. What was sampled to be measured stays with the episode it was sampled for, and is what it would
have said unmeasured.

A job whose environment breaks is begun again at the root, as a new attempt, wherever it had come from; the others of
its task are not touched. Whoever merely loses a host that another environment broke gets a fresh environment, in which
what was done is done again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

from agent_envs.isolation.faults import EnvFault
from agents.engine.base import Completion, Request, StopReason
from agents.rollout.forking.rule import Branch, FirstEntropy, Measure, Plan, TaskPlan
from agents.rollout.forking.slots import BranchingSeat, Newborn
from agents.rollout.scheduler import Loop, Seat
from agents.tree.episode import Fault, Job


@dataclass
class Family:
    """The episodes of one task."""

    plan: TaskPlan
    next: int
    """Session of the next one to begin."""
    live: set[int] = field(default_factory=set)
    """Sessions of those that have begun and not ended; broken ones that will be played again are among them."""
    parked: dict[int, Seat] = field(default_factory=dict)
    """Those that have ended a turn and wait for the others."""
    measuring: set[int] = field(default_factory=set)
    """Sessions for which the engine samples what is to be measured."""
    measured: dict[int, Completion] = field(default_factory=dict)
    """What it has sampled: the beginning of a session's next turn."""


class BranchingLoop(Loop):
    """See :class:`agents.rollout.scheduler.Loop`. The jobs of a task stand together, as many as its budget allows."""

    kind = BranchingSeat

    def __init__(self, plan: Plan, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.plan, group = plan, plan.sampling.group
        if len(self.jobs) % group or any(len({j.task.id for j in self.of(i)}) > 1 for i in self.firsts):
            raise ValueError(f"every task of a plan needs its {group} jobs, one after another")
        if group > self.engine.slots:
            raise ValueError(f"the engine has {self.engine.slots} slots, too few for the {group} episodes of a task")
        self.families: dict[int, Family] = {}
        self.later = list(reversed(self.firsts))
        """First sessions of the tasks that have not begun."""

    @property
    def firsts(self) -> range:
        return range(0, len(self.jobs), self.plan.sampling.group)

    def of(self, first: int) -> Sequence[Job]:
        return self.jobs[first : first + self.plan.sampling.group]

    def family(self, session: int) -> Family:
        return self.families[session - session % self.plan.sampling.group]

    # -- what is done otherwise ----------------------------------------------------------------------------------

    def admit(self) -> None:
        """Lets tasks begin for which there are slots, whatever their episodes do."""
        while self.later and (len(self.families) + 1) * self.plan.sampling.group <= self.engine.slots:
            first = self.later.pop()
            family = self.families[first] = Family(TaskPlan(self.plan), first)
            self.begin(family, family.plan.made)

    def begin(self, family: Family, count: int) -> None:
        """The next ``count`` jobs of a task begin at the root."""
        for _ in range(count):
            self.waiting.append((family.next, self.jobs[family.next]))
            family.live.add(family.next)
            family.next += 1

    def ready(self, seat: Seat, request: Request) -> None:
        family, sampling = self.family(seat.session), self.plan.sampling
        if not family.plan.left or not seat.player.episode.turns:
            self.submit(seat, request)
        elif sampling.measure == Measure.CALLING_TURN:
            self.park(seat)
        else:
            family.measuring.add(seat.session)
            self.submit(seat, replace(request, max_tokens=min(sampling.tokens, request.max_tokens)))

    def completed(self, seat: Seat, completion: Completion) -> None:
        family = self.family(seat.session)
        if seat.session in family.measuring:
            family.measuring.remove(seat.session)
            family.measured[seat.session] = completion
            self.park(seat)
            return
        begun = family.measured.pop(seat.session, None)
        super().completed(seat, completion if begun is None else joined(begun, completion))

    def ended(self, session: int) -> None:
        family = self.family(session)
        family.live.remove(session)
        self.decide(family)
        if not family.live:
            del self.families[session - session % self.plan.sampling.group]
            self.admit()

    # -- rounds --------------------------------------------------------------------------------------------------

    def park(self, seat: Seat) -> None:
        family = self.family(seat.session)
        family.parked[seat.session] = seat
        self.decide(family)

    def decide(self, family: Family) -> None:
        """Ends a round, if everybody has come to its end: some fork, all go on, and new episodes may begin."""
        if len(family.parked) < len(family.live):
            return
        seats = [family.parked[session] for session in sorted(family.parked)]
        family.parked.clear()
        forks, fresh = family.plan.decide([self.branch(seat) for seat in seats])
        for seat, count in zip(seats, forks, strict=True):
            children = [Newborn(s, self.jobs[s]) for s in range(family.next, family.next + count)]
            family.next += count
            family.live.update(child.session for child in children)
            if children:
                assert isinstance(seat, BranchingSeat)
                self.ask(seat, partial(self.born, children), seat.bear, children)
            else:
                self.go_on(seat)
        self.begin(family, fresh)

    def branch(self, seat: Seat) -> Branch:
        """Where an episode stands, and how unsure it is."""
        episode, sampling = seat.player.episode, self.plan.sampling
        first = episode.inherited if sampling.first == FirstEntropy.OWN else 0
        begun = self.family(seat.session).measured.get(seat.session)
        now = episode.turns[-1][0].entropy if begun is None else begun.entropy
        return Branch(
            self.shares(now),
            self.shares(episode.turns[first][0].entropy),
            calls=len(episode.turns),
            rng=Random(seat.job.seed(len(episode.turns), "fork")),
        )

    def shares(self, entropy: Sequence[float]) -> tuple[float, ...]:
        return tuple(x / math.log(self.engine.vocabulary) for x in entropy[: self.plan.sampling.tokens])

    def born(self, children: Sequence[Newborn], seat: Seat, fault: EnvFault | None) -> None:
        """The forks of ``seat`` come into play, and it goes on."""
        assert seat.player.request is not None
        # What is measured has read the observation already.
        unread = seat.player.request.tokens if self.plan.sampling.measure == Measure.CALLING_TURN else ()
        for child in children:
            if child.seat is not None:
                self.active[child.session] = child.seat
                ask = replace(
                    seat.player.request,
                    session=child.session,
                    tokens=unread,
                    seed=child.job.seed(len(seat.player.episode.turns)),
                    fork_of=seat.session,
                    fork_at=seat.player.length - len(unread),
                )
                self.submit(child.seat, ask)
            elif child.fault is not None:
                self.give_up_or_retry(child.session, Fault.of(child.job, child.fault))
        if fault is None:
            self.go_on(seat)
        else:
            self.family(seat.session).measured.pop(seat.session, None)
            self.leave(seat)
            self.give_up_or_retry(seat.session, Fault.of(seat.job, fault))

    def go_on(self, seat: Seat) -> None:
        request, family = seat.player.request, self.family(seat.session)
        assert request is not None
        begun = family.measured.get(seat.session)
        if begun is None:
            self.submit(seat, request)
        elif begun.stop is StopReason.LENGTH and len(begun.tokens) == self.plan.sampling.tokens < request.max_tokens:
            n = len(begun.tokens)
            self.submit(seat, replace(request, tokens=(), max_tokens=request.max_tokens - n, skip=n))
        else:  # it was the whole turn
            super().completed(seat, family.measured.pop(seat.session))


def joined(begun: Completion, rest: Completion) -> Completion:
    """One turn that was sampled in two parts."""
    columns = (begun.tokens + rest.tokens, begun.logp + rest.logp, begun.entropy + rest.entropy)
    return Completion(rest.session, *columns, rest.stop, rest.version)
