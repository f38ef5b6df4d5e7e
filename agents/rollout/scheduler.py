"""A rollout in progress: which jobs are in play, and what the engine and the environments still have to answer.

Invariant: see `play`. The scheduler owns slots, environments, faults and the order of everything; a `SchedulingPolicy`
decides how a job becomes an episode: one action after another (`Chain`), by forks, or by a search.
"""

import contextlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic
from typing import Any, Generic, TypeVar

from agent_envs.core import PlayableEnv
from agent_envs.isolation.faults import EnvFault, HostLost
from agents.engine.base import Completion, Engine, Request, need
from agents.rollout.calls import EnvCalls
from agents.rollout.react import Player, ReAct
from agents.rollout.settings import FaultSettings, ReActSettings
from agents.rollout.slot import MakeEnv, Slot, close_all, in_turn, process_of
from agents.text.chat import Chat
from agents.tree.episode import Episode, Fault, Job


class Stalled(RuntimeError):  # noqa: N818
    """No episode ended for longer than the settings allow."""


@dataclass(frozen=True)
class Cut:
    """A job whose group was not complete when there were enough."""

    job: Job
    episode: Episode | None
    """What there is of it after its last whole turn, or all of it; None where it has no turn."""


@dataclass
class Played:
    """What came of some jobs."""

    outcomes: list[Episode | Fault]
    """One for each job that was not cut, in their order: the episode, or what broke the last attempt at it."""
    faults: list[Fault] = field(default_factory=list)
    """All attempts that broke, also those that a later attempt made up for."""
    seconds_env: float = 0.0
    """Time the engine stood still for environments; what they did meanwhile is not counted."""
    cut: list[Cut] = field(default_factory=list)
    """Jobs that a quota left over, in their order; they have no outcome, nor have those of their groups that broke."""

    @property
    def episodes(self) -> list[Episode]:
        """Those that were played to their end, in the order of the jobs."""
        return [outcome for outcome in self.outcomes if isinstance(outcome, Episode)]


@dataclass(frozen=True)
class RolloutOptions:
    """What a rollout plays, on what, and how (`play.rollout`)."""

    make_env: Mapping[str, MakeEnv]
    """By the name of the environment (`Job.env`)."""
    engine: Engine
    chat: Chat
    jobs: Sequence[Job]
    settings: ReActSettings
    faults: FaultSettings
    exact: bool
    on_episode: Callable[[Episode], None] | None
    threads: int
    player: Player
    spare: dict[str, list[PlayableEnv]] | None = None
    """Environments that wait for an episode, by name, those of earlier rollouts among them; None: this rollout closes
    its own."""


S = TypeVar("S", bound=Slot)


class SchedulingPolicy(ABC, Generic[S]):
    """How jobs become episodes. The scheduler calls it in one thread, in an order that timing does not change."""

    sessions_per_job = 1
    """Sessions of the engine that a job may need at once."""
    slot_class: type[S]
    """What a job in play is."""

    def __init__(self, scheduler: "Scheduler[S]") -> None:
        self.scheduler, self.engine = scheduler, scheduler.engine

    def admit(self) -> None:
        """Queues the first jobs."""
        self.scheduler.waiting.extend(enumerate(self.scheduler.jobs))

    @abstractmethod
    def answered(self, slot: S, request: Request | None) -> None:
        """The slot's environment has reset or stepped; None: the episode is over."""

    @abstractmethod
    def completed(self, completion: Completion) -> None:
        """The engine has sampled what was asked."""

    def idle(self) -> None:
        """Neither the engine nor an environment is asked for anything."""

    def enough(self) -> bool:
        """Whether the rollout may end before every job has."""
        return False

    def taken(self) -> Sequence[int]:
        """The jobs, in their order, of which a rollout that has ended tells the outcome."""
        return range(len(self.scheduler.jobs))

    def standing(self, job: Job) -> Episode | None:
        """What there was of a job before it was played."""
        return None

    def close(self, slot: S) -> None:
        """Closes the engine's sessions of a slot that leaves."""
        if slot.open:
            self.engine.close_session(slot.session)

    def ended(self, session: int) -> None:
        """A job has come to its end, as an episode or as a fault."""


class Scheduler(Generic[S]):
    """A rollout in progress."""

    def __init__(self, options: RolloutOptions) -> None:
        self.options, self.engine, self.jobs = options, options.engine, options.jobs
        self.done: dict[int, Episode | Fault] = {}
        self.broken: list[Fault] = []
        self.waiting: deque[tuple[int, Job]] = deque()
        self.active: dict[int, S] = {}
        self.spare = {} if options.spare is None else options.spare
        """Environments of episodes that are over, for the next ones, by name."""
        for name in options.make_env:
            self.spare[name] = in_turn(self.spare.get(name, ()))
        self.calls: dict[Future[Any], tuple[S, Callable[[S, Any], None]]] = {}
        """What environments are doing now, for which slot, and who takes the answer."""
        self.stood_still, self.last_end = 0.0, monotonic()
        self.env_calls = EnvCalls(options.threads)
        self.policy: SchedulingPolicy[S]

    def run(self, policy: SchedulingPolicy[S]) -> Played:
        """Plays all jobs. Raises Stalled."""
        self.policy = policy
        try:
            policy.admit()
            while (self.waiting or self.active) and not policy.enough():
                self.fill()
                self.collect()
                for completion in self.engine.step() if self.engine.pending else ():
                    policy.completed(completion)
                self.collect()
                self.check_progress()
            cut = self.cut()
            if self.options.spare is None:
                for env in self.take_spares():
                    with contextlib.suppress(EnvFault):  # its episodes are over
                        env.close()
        except Exception:
            wait(self.calls)
            for slot in self.active.values():
                slot.abandon()
            close_all(self.take_spares())  # the first error is the one to be seen
            raise
        except BaseException:
            self.take_spares()  # after an interrupt do not wait for an environment that may hang
            raise
        finally:
            self.env_calls.close()
        return Played([self.done[i] for i in policy.taken()], self.broken, self.stood_still, cut)

    def cut(self) -> list[Cut]:
        """Takes all that is still in play out of it, and tells what there is of the jobs that are not taken."""
        wait(self.calls)
        there = {session: Cut(job, self.policy.standing(job)) for session, job in self.waiting}
        for session, slot in self.active.items():
            there[session] = Cut(slot.job, slot.record or self.policy.standing(slot.job))
            self.policy.close(slot)
            slot.abandon()
        there |= {i: Cut(end.job, end) for i, end in self.done.items() if isinstance(end, Episode)}
        taken = set(self.policy.taken())
        return [there[session] for session in sorted(there) if session not in taken]

    def fill(self) -> None:
        """Brings waiting jobs into play while the engine has sessions for them."""
        while self.waiting and (len(self.active) + 1) * self.policy.sessions_per_job <= self.engine.slots:
            session, job = self.waiting.popleft()
            spare = self.spare[job.env]
            env = spare.pop() if spare else None
            slot = self.active[session] = self.policy.slot_class(session, job, self.options.make_env[job.env], env)
            self.ask(slot, self.policy.answered, slot.begin, self.play, self.policy.standing(job))

    def take_spares(self) -> list[PlayableEnv]:
        """Those that wait; nobody finds them any more."""
        taken = [env for envs in self.spare.values() for env in envs]
        for envs in self.spare.values():
            envs.clear()
        return taken

    def play(self, env: PlayableEnv, job: Job, session: int) -> ReAct:
        return self.options.player(env, self.options.chat, job, session, self.options.settings)

    def ask_turn(self, slot: S, then: Callable[[S, Any], None], completion: Completion) -> None:
        """Has a sampled action done; ``then`` takes the next request."""
        self.ask(slot, then, slot.turn, completion, begin=partial(slot.begin_turn, completion))

    def ask(
        self,
        slot: S,
        then: Callable[[S, Any], None],
        call: Callable[..., Any],
        *arguments: Any,
        begin: Callable[[], None] | None = None,
    ) -> None:
        """Has ``call`` done in a thread; ``then`` takes its answer. ``begin``: see `EnvCall`."""
        # A player of another package may wait for more than its environment.
        process = process_of(slot.env) if self.options.player is ReAct else None
        self.calls[self.env_calls.submit(process, begin, call, *arguments)] = (slot, then)

    def collect(self) -> None:
        """Takes what the environments answered, in the order in which they were asked."""
        started = monotonic()
        if self.options.exact:
            wait(self.calls)
        elif self.calls and not self.engine.pending:  # nothing to compute, nothing to hold up
            wait(self.calls, return_when=FIRST_COMPLETED)
        for future in [f for f in self.calls if f.done()]:
            slot, then = self.calls.pop(future)
            try:
                answer = future.result()
            except HostLost:
                self.leave(slot)
                self.waiting.append((slot.session, slot.job))
            except EnvFault as error:
                self.fail(slot, error)
            else:
                then(slot, answer)
        self.stood_still += monotonic() - started
        if not self.engine.pending and not self.calls:
            self.policy.idle()

    def submit(self, slot: S, request: Request) -> None:
        if request.cut is not None:
            need(self.engine, "thought_cuts", "an environment whose turns are thoughts")
        self.engine.submit(request)
        slot.open = True

    def finish(self, slot: S, episode: Episode, *, reuse: bool) -> None:
        """Takes a slot whose episode is over out of play; with ``reuse`` its environment may serve another."""
        del self.active[slot.session]
        self.policy.close(slot)
        spare = self.spare[slot.job.env]
        if reuse and slot.env is not None and len(spare) + len(self.active) < self.engine.slots:
            spare.append(slot.env)
        else:
            slot.abandon()
        self.done[slot.session] = episode
        self.last_end = monotonic()
        if self.options.on_episode:
            self.options.on_episode(episode)
        self.policy.ended(slot.session)

    def leave(self, slot: S) -> None:
        """Takes a job with a broken environment out of play."""
        del self.active[slot.session]
        self.policy.close(slot)
        slot.abandon()

    def fail(self, slot: S, error: EnvFault) -> None:
        """Takes a broken slot out of play; its job is played again, or given up."""
        self.leave(slot)
        self.give_up_or_retry(slot.session, Fault.of(slot.job, error))

    def give_up_or_retry(self, session: int, fault: Fault) -> None:
        self.broken.append(fault)
        if fault.job.attempt < self.options.faults.retries:
            self.waiting.append((session, replace(fault.job, attempt=fault.job.attempt + 1)))
        else:
            self.done[session] = fault
            self.policy.ended(session)

    def check_progress(self) -> None:
        limit = self.options.faults.stall_seconds
        if monotonic() - self.last_end > limit:
            newest = f"; newest fault: {self.broken[-1]}" if self.broken else ""
            raise Stalled(
                f"no episode has ended for {limit:g} s, {len(self.active)} are in play{newest}; "
                "raise --faults.stall-seconds, or look at the environment"
            )


class Chain(SchedulingPolicy[Slot]):
    """Every job is one episode with one session, one action after another."""

    slot_class = Slot

    def answered(self, slot: Slot, request: Request | None) -> None:
        if request is None:
            self.scheduler.finish(slot, slot.player.episode, reuse=True)
        else:
            self.scheduler.submit(slot, request)

    def completed(self, completion: Completion) -> None:
        slot = self.scheduler.active[completion.session]
        self.scheduler.ask_turn(slot, self.answered, completion)
