"""A rollout in progress: who is in play, whom the engine and whom an environment has to answer.

Invariant: see `play`. A seat is one job in play: it has an environment of its own and at most one session of
the engine, which is open from its first request until the episode is over.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

from agent_envs.core import PlayableEnv
from agent_envs.isolation.faults import EnvFault, HostLost, Stage, blamed
from agents.engine.base import Completion, Engine, Request
from agents.rollout.react import ReAct, ReActSettings
from agents.text.chat import Chat
from agents.tree.episode import Episode, Fault, Job


@dataclass(frozen=True)
class FaultSettings:
    """What is done about environments that break; a bad action of the model is no fault."""

    retries: int = 2
    """How often an episode is played again after its environment broke; then it is left out of the update."""
    max_rate: float = 0.5
    """The run stops when more than this share of the last 200 attempts broke."""
    stall_seconds: float = 900.0
    """The run stops when no episode has ended for so long."""

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise ValueError(f"retries must not be negative, but is {self.retries}")
        if not 0 < self.max_rate <= 1:
            raise ValueError(f"max_rate must lie above 0 and up to 1, not {self.max_rate}")
        if not self.stall_seconds > 0:
            raise ValueError(f"stall_seconds must be above 0, not {self.stall_seconds}")


class Stalled(RuntimeError):  # noqa: N818
    """No episode ended for longer than the settings allow."""


@dataclass
class Played:
    """What came of some jobs."""

    outcomes: list[Episode | Fault]
    """One for each job, in their order: the episode, or what broke the last attempt at it."""
    faults: list[Fault] = field(default_factory=list)
    """All attempts that broke, also those that were made good."""
    seconds_env: float = 0.0
    """Time the engine stood still for environments; what they did meanwhile is not counted."""

    @property
    def episodes(self) -> list[Episode]:
        """Those that were played to their end, in the order of the jobs."""
        return [outcome for outcome in self.outcomes if isinstance(outcome, Episode)]


class Seat:
    """One job in play; its methods run in a thread of the pool."""

    def __init__(
        self,
        session: int,
        job: Job,
        make_env: Callable[[], PlayableEnv],
        env: PlayableEnv | None = None,
        player: ReAct | None = None,
    ) -> None:
        self.session, self.job, self.make_env, self.env = session, job, make_env, env
        self._player = player
        self.open = False
        """Whether the engine has a session for it."""

    @property
    def player(self) -> ReAct:
        """Who plays; there from the beginning on."""
        assert self._player is not None
        return self._player

    def begin(self, play: Callable[[PlayableEnv, Job, int], ReAct]) -> Request | None:
        if self.env is None:
            with blamed(Stage.MAKE):
                self.env = self.make_env()
        self._player = play(self.env, self.job, self.session)
        return self._player.start()

    def turn(self, completion: Completion) -> Request | None:
        return self.player.turn(completion)

    def abandon(self) -> None:
        """Closes an environment that is known to be broken, or that nobody needs any more."""
        if self.env is not None:
            with contextlib.suppress(Exception):
                self.env.close()


class Loop:
    """A rollout in progress. What branches overrides the methods below "what may be done otherwise"."""

    kind: type[Seat] = Seat

    def __init__(
        self,
        make_env: Callable[[], PlayableEnv],
        engine: Engine,
        chat: Chat,
        jobs: Sequence[Job],
        settings: ReActSettings,
        faults: FaultSettings,
        exact: bool,
        on_episode: Callable[[Episode], None] | None,
        threads: int,
    ) -> None:
        self.make_env, self.engine, self.chat, self.jobs = make_env, engine, chat, jobs
        self.settings, self.faults, self.exact, self.on_episode = settings, faults, exact, on_episode
        self.done: dict[int, Episode | Fault] = {}
        self.broken: list[Fault] = []
        self.waiting: deque[tuple[int, Job]] = deque()
        self.active: dict[int, Seat] = {}
        self.idle: list[PlayableEnv] = []
        self.stepping: dict[Future[Any], tuple[Seat, Callable[[Seat, Any], None]]] = {}
        """What environments are asked now, of whom, and who takes the answer."""
        self.stood_still, self.last_end = 0.0, monotonic()
        self.pool = ThreadPoolExecutor(threads)

    def run(self) -> Played:
        try:
            self.admit()
            while self.waiting or self.active:
                self.fill()
                self.collect()
                for completion in self.engine.step() if self.engine.pending else ():
                    self.completed(self.seat_of(completion.session), completion)
                self.collect()
                self.check_progress()
            for env in self.idle:
                with contextlib.suppress(EnvFault):  # its episodes are over
                    env.close()
        except Exception:
            wait(self.stepping)
            for seat in self.active.values():
                seat.abandon()
            for env in self.idle:
                with contextlib.suppress(Exception):  # the first error is the one to be seen
                    env.close()
            raise
        finally:
            # After an interrupt nobody waits for an environment that may hang.
            self.pool.shutdown(wait=False, cancel_futures=True)
        return Played([self.done[i] for i in range(len(self.jobs))], self.broken, self.stood_still)

    def fill(self) -> None:
        while self.waiting and len(self.active) < self.engine.slots:
            session, job = self.waiting.popleft()
            env = self.idle.pop() if self.idle else None
            seat = self.active[session] = self.kind(session, job, self.make_env, env)
            self.ask(seat, self.answered, seat.begin, self.play)

    def play(self, env: PlayableEnv, job: Job, session: int) -> ReAct:
        return ReAct(env, self.chat, job, session, self.settings)

    def ask(self, seat: Seat, then: Callable[[Seat, Any], None], call: Callable[..., Any], *arguments: Any) -> None:
        self.stepping[self.pool.submit(call, *arguments)] = (seat, then)

    def collect(self) -> None:
        """Takes what the environments answered, in the order in which they were asked."""
        started = monotonic()
        if self.exact:
            wait(self.stepping)
        elif self.stepping and not self.engine.pending:  # nothing to compute, nothing to hold up
            wait(self.stepping, return_when=FIRST_COMPLETED)
        for future in [f for f in self.stepping if f.done()]:
            seat, then = self.stepping.pop(future)
            try:
                answer = future.result()
            except HostLost:
                self.leave(seat)
                self.waiting.append((seat.session, seat.job))
            except EnvFault as error:
                self.leave(seat)
                self.give_up_or_retry(seat.session, Fault.of(seat.job, error))
            else:
                then(seat, answer)
        self.stood_still += monotonic() - started

    def answered(self, seat: Seat, request: Request | None) -> None:
        """The environment of ``seat`` is ready for the next action, or the episode is over."""
        if request is not None:
            self.ready(seat, request)
            return
        del self.active[seat.session]
        if seat.open:
            self.engine.close_session(seat.session)
        if len(self.idle) + len(self.active) < self.engine.slots and seat.env is not None:
            self.idle.append(seat.env)
        else:
            seat.abandon()
        episode = self.done[seat.session] = seat.player.episode
        self.last_end = monotonic()
        if self.on_episode:
            self.on_episode(episode)
        self.ended(seat.session)

    def submit(self, seat: Seat, request: Request) -> None:
        self.engine.submit(request)
        seat.open = True

    def leave(self, seat: Seat) -> None:
        """Takes a job with a broken environment out of play."""
        del self.active[seat.session]
        if seat.open:
            self.engine.close_session(seat.session)
        seat.abandon()

    def give_up_or_retry(self, session: int, fault: Fault) -> None:
        self.broken.append(fault)
        if fault.job.attempt < self.faults.retries:
            self.waiting.append((session, replace(fault.job, attempt=fault.job.attempt + 1)))
        else:
            self.done[session] = fault
            self.ended(session)

    def check_progress(self) -> None:
        if monotonic() - self.last_end > self.faults.stall_seconds:
            newest = f"; newest fault: {self.broken[-1]}" if self.broken else ""
            raise Stalled(
                f"no episode has ended for {self.faults.stall_seconds:g} s, {len(self.active)} are in play{newest}; "
                "raise --faults.stall-seconds, or look at the environment"
            )

    # -- what may be done otherwise ------------------------------------------------------------------------------

    def admit(self) -> None:
        """Lets jobs begin as soon as there are slots."""
        self.waiting.extend(enumerate(self.jobs))

    def seat_of(self, session: int) -> Seat:
        """Whose request a session of the engine serves."""
        return self.active[session]

    def ready(self, seat: Seat, request: Request) -> None:
        """An episode has read what it was answered, and goes on with ``request``."""
        self.submit(seat, request)

    def completed(self, seat: Seat, completion: Completion) -> None:
        self.ask(seat, self.answered, seat.turn, completion)

    def ended(self, session: int) -> None:
        """A job has come to its end, as an episode or as a fault."""
