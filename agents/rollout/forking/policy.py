"""A rollout whose episodes fork while they are played.

Invariants: a task's episodes go in rounds: which of them fork is decided when all that are in play have ended a turn
(and have begun the next, where that is what is measured), so neither timing nor other tasks matter. A fork is a copy of
the episode's record, of its environment and of its session, cut where its turn begins; from there on it samples by the
seeds of its own job. What was sampled to be measured stays with the episode it was sampled for, and is what it would
have been unmeasured.

A job whose environment breaks is begun again at the root, as a new attempt, wherever it came from; the others of its
task are not touched. A slot that merely loses a host that another environment broke gets a fresh environment, in which
what was done is done again.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

from agent_envs.isolation.faults import EnvFault
from agents.engine.base import Completion, Request, StopReason, need
from agents.rollout.forking.budget import Branch, TaskBudget
from agents.rollout.forking.settings import FirstEntropy, ForkPlan, Measure
from agents.rollout.forking.slot import Fork, ForkSlot
from agents.rollout.scheduler import Scheduler, SchedulingPolicy
from agents.tree.episode import Fault


@dataclass
class Group:
    """The episodes of one task."""

    budget: TaskBudget
    next: int
    """Session of the next one to begin."""
    live: set[int] = field(default_factory=set)
    """Sessions of those that have begun and not ended; broken ones that will be played again are among them."""
    parked: dict[int, ForkSlot] = field(default_factory=dict)
    """Those that have ended a turn and wait for the others."""
    measuring: set[int] = field(default_factory=set)
    """Sessions for which the engine samples what is to be measured."""
    measured: dict[int, Completion] = field(default_factory=dict)
    """What it has sampled: the beginning of a session's next turn."""


class Forking(SchedulingPolicy[ForkSlot]):
    """A task's jobs stand together, as many as its budget allows.

    Raises ValueError for jobs or slots that do not suit the plan, and EngineError for an engine that cannot fork.
    """

    slot_class = ForkSlot

    def __init__(self, scheduler: Scheduler[ForkSlot], plan: ForkPlan) -> None:
        super().__init__(scheduler)
        self.jobs, self.plan = scheduler.jobs, plan
        self.size = plan.sampling.group
        """Jobs of a task."""
        self.next_turn = plan.sampling.measure == Measure.NEXT_TURN
        firsts = range(0, len(self.jobs), self.size)
        tasks = [{job.task_id for job in self.jobs[first : first + self.size]} for first in firsts]
        if len(self.jobs) % self.size or any(len(ids) > 1 for ids in tasks):
            raise ValueError(f"every task of a plan needs its {self.size} jobs, one after another")
        if self.size > self.engine.slots:
            raise ValueError(
                f"the engine has {self.engine.slots} slots, too few for the {self.size} episodes of a task"
            )
        need(self.engine, "forks", "an algorithm whose episodes fork")
        need(self.engine, "full_entropy", "an algorithm whose episodes fork")
        self.groups: dict[int, Group] = {}
        self.later = list(reversed(firsts))
        """First sessions of the tasks that have not begun."""

    def group(self, session: int) -> Group:
        return self.groups[session - session % self.size]

    def admit(self) -> None:
        """Lets tasks begin for which there are slots, whatever their episodes do."""
        while self.later and (len(self.groups) + 1) * self.size <= self.engine.slots:
            first = self.later.pop()
            group = self.groups[first] = Group(TaskBudget(self.plan), first)
            self.begin(group, group.budget.made)

    def begin(self, group: Group, count: int) -> None:
        """The next ``count`` jobs of a task begin at the root."""
        for _ in range(count):
            self.scheduler.waiting.append((group.next, self.jobs[group.next]))
            group.live.add(group.next)
            group.next += 1

    def answered(self, slot: ForkSlot, request: Request | None) -> None:
        if request is None:
            self.scheduler.finish(slot, slot.player.episode, reuse=True)
            return
        group = self.group(slot.session)
        if not group.budget.left or not slot.player.episode.turns:
            self.scheduler.submit(slot, request)
        elif self.next_turn:
            group.measuring.add(slot.session)
            tokens = min(self.plan.sampling.tokens, request.max_tokens)
            self.scheduler.submit(slot, replace(request, max_tokens=tokens))
        else:
            self.park(slot)

    def completed(self, completion: Completion) -> None:
        slot = self.scheduler.active[completion.session]
        group = self.group(slot.session)
        if slot.session in group.measuring:
            group.measuring.remove(slot.session)
            group.measured[slot.session] = completion
            self.park(slot)
            return
        begun = group.measured.pop(slot.session, None)
        self.act(slot, completion if begun is None else joined(begun, completion))

    def act(self, slot: ForkSlot, completion: Completion) -> None:
        self.scheduler.ask_turn(slot, self.answered, completion)

    def ended(self, session: int) -> None:
        group = self.group(session)
        group.live.remove(session)
        self.decide(group)
        if not group.live:
            del self.groups[session - session % self.size]
            self.admit()

    def park(self, slot: ForkSlot) -> None:
        group = self.group(slot.session)
        group.parked[slot.session] = slot
        self.decide(group)

    def decide(self, group: Group) -> None:
        """Ends a round, if all have come to its end: some fork, all go on, and new episodes may begin."""
        if len(group.parked) < len(group.live):
            return
        slots = [group.parked[session] for session in sorted(group.parked)]
        group.parked.clear()
        counts, fresh = group.budget.decide([self.branch(slot) for slot in slots])
        for slot, count in zip(slots, counts, strict=True):
            forks = [Fork(s, self.jobs[s]) for s in range(group.next, group.next + count)]
            group.next += count
            group.live.update(fork.session for fork in forks)
            if forks:
                self.scheduler.ask(slot, partial(self.forked, forks), slot.fork, forks)
            else:
                self.go_on(slot)
        self.begin(group, fresh)

    def branch(self, slot: ForkSlot) -> Branch:
        """Where an episode stands, and how uncertain it is."""
        episode, sampling = slot.player.episode, self.plan.sampling
        first = episode.inherited if sampling.first == FirstEntropy.OWN else 0
        begun = self.group(slot.session).measured.get(slot.session)
        now = episode.turns[-1][0].entropy if begun is None else begun.entropy
        return Branch(
            self.shares(now),
            self.shares(episode.turns[first][0].entropy),
            calls=len(episode.turns),
            rng=Random(slot.job.seed(len(episode.turns), "fork")),
        )

    def shares(self, entropy: Sequence[float]) -> tuple[float, ...]:
        return tuple(x / math.log(self.engine.vocabulary) for x in entropy[: self.plan.sampling.tokens])

    def forked(self, forks: Sequence[Fork], slot: ForkSlot, fault: EnvFault | None) -> None:
        """The forks of ``slot`` come into play, and it goes on."""
        assert slot.player.request is not None
        # What is measured has read the observation already.
        unread = () if self.next_turn else slot.player.request.tokens
        for fork in forks:
            if fork.slot is not None:
                self.scheduler.active[fork.session] = fork.slot
                request = replace(
                    slot.player.request,
                    session=fork.session,
                    tokens=unread,
                    seed=fork.job.seed(len(slot.player.episode.turns)),
                    fork_of=slot.session,
                    fork_at=slot.player.length - len(unread),
                )
                self.scheduler.submit(fork.slot, request)
            elif fork.fault is not None:
                self.scheduler.give_up_or_retry(fork.session, Fault.of(fork.job, fork.fault))
        if fault is None:
            self.go_on(slot)
        else:
            self.group(slot.session).measured.pop(slot.session, None)
            self.scheduler.fail(slot, fault)

    def go_on(self, slot: ForkSlot) -> None:
        request, group = slot.player.request, self.group(slot.session)
        assert request is not None
        begun = group.measured.get(slot.session)
        if begun is None:
            self.scheduler.submit(slot, request)
        elif begun.stop is StopReason.LENGTH and len(begun.tokens) == self.plan.sampling.tokens < request.max_tokens:
            n = len(begun.tokens)
            self.scheduler.submit(slot, replace(request, tokens=(), max_tokens=request.max_tokens - n, skip=n))
        else:  # it was the whole turn
            self.act(slot, group.measured.pop(slot.session))


def joined(begun: Completion, rest: Completion) -> Completion:
    """One turn that was sampled in two parts."""
    columns = (begun.tokens + rest.tokens, begun.logp + rest.logp, begun.entropy + rest.entropy)
    return Completion(rest.session, *columns, rest.stop, rest.version)
