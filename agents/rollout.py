"""Plays many episodes at once on one engine.

Invariant: the episodes come back in the order of the jobs, and what an episode samples depends on its own job only, not
on which others are played beside it (up to the rounding of a batched matrix product; ``exact`` takes that away too). An
environment that breaks costs its own episode only: it is recorded, played again on a fresh copy, and then given up.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from time import monotonic

from agent_envs.core import PlayableEnv
from agent_envs.faults import EnvFault, HostLost, Stage, blamed
from agents.chat import Chat
from agents.engine.base import Engine, Request
from agents.react import Episode, Fault, Job, ReAct, ReActSettings


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


@dataclass
class _Seat:
    """One job in play; its methods run in a thread of the pool."""

    session: int
    job: Job
    env: PlayableEnv | None
    player: ReAct | None = None
    open: bool = False
    """Whether the engine has a session for it."""

    def begin(
        self, make_env: Callable[[], PlayableEnv], play: Callable[[PlayableEnv, Job, int], ReAct]
    ) -> Request | None:
        if self.env is None:
            with blamed(Stage.MAKE):
                self.env = make_env()
        self.player = play(self.env, self.job, self.session)
        return self.player.start()


def rollout(
    make_env: Callable[[], PlayableEnv],
    engine: Engine,
    chat: Chat,
    jobs: Sequence[Job],
    settings: ReActSettings | None = None,
    *,
    faults: FaultSettings | None = None,
    exact: bool = True,
    on_episode: Callable[[Episode], None] | None = None,
    threads: int = 8,
) -> Played:
    """Plays ``jobs``.

    ``make_env`` is called at most once per open slot, and again for each environment that broke; environments are used
    again. They reset and step in ``threads`` threads. With ``exact`` the engine waits for all that it has asked: the
    same jobs then give the same bits, whatever the timing. Without it a slow environment never holds up the others.
    ``on_episode`` hears of each episode as it ends. Raises Stalled.
    """
    settings, faults = settings or ReActSettings(), faults or FaultSettings()
    done: dict[int, Episode | Fault] = {}
    broken: list[Fault] = []
    waiting = deque(enumerate(jobs))
    active: dict[int, _Seat] = {}
    idle: list[PlayableEnv] = []
    stepping: dict[Future[Request | None], _Seat] = {}
    stood_still, last_end = 0.0, monotonic()

    def play(env: PlayableEnv, job: Job, session: int) -> ReAct:
        return ReAct(env, chat, job, session, settings)

    def fill() -> None:
        while waiting and len(active) < engine.slots:
            session, job = waiting.popleft()
            seat = active[session] = _Seat(session, job, idle.pop() if idle else None)
            stepping[pool.submit(seat.begin, make_env, play)] = seat

    def collect() -> None:
        """Takes what the environments answered, in the order in which they were asked."""
        nonlocal stood_still
        started = monotonic()
        if exact:
            wait(stepping)
        elif stepping and not engine.pending:  # nothing to compute, nothing to hold up
            wait(stepping, return_when=FIRST_COMPLETED)
        for future in [f for f in stepping if f.done()]:
            seat = stepping.pop(future)
            try:
                request = future.result()
            except HostLost:
                leave(seat)
                waiting.append((seat.session, seat.job))
            except EnvFault as error:
                leave(seat)
                give_up_or_retry(seat, Fault.of(seat.job, error))
            else:
                advance(seat, request)
        stood_still += monotonic() - started

    def leave(seat: _Seat) -> None:
        """Takes a job with a broken environment out of play."""
        del active[seat.session]
        if seat.open:
            engine.close_session(seat.session)
        if seat.env is not None:
            with contextlib.suppress(Exception):  # it is known to be broken
                seat.env.close()

    def give_up_or_retry(seat: _Seat, fault: Fault) -> None:
        broken.append(fault)
        if seat.job.attempt < faults.retries:
            waiting.append((seat.session, replace(seat.job, attempt=seat.job.attempt + 1)))
        else:
            done[seat.session] = fault

    def advance(seat: _Seat, request: Request | None) -> None:
        nonlocal last_end
        if request is not None:
            engine.submit(request)
            seat.open = True
            return
        assert seat.player is not None and seat.env is not None
        del active[seat.session]
        if seat.open:
            engine.close_session(seat.session)
        idle.append(seat.env)
        episode = done[seat.session] = seat.player.episode
        last_end = monotonic()
        if on_episode:
            on_episode(episode)

    def check_progress() -> None:
        if monotonic() - last_end > faults.stall_seconds:
            newest = f"; newest fault: {broken[-1]}" if broken else ""
            raise Stalled(
                f"no episode has ended for {faults.stall_seconds:g} s, {len(active)} are in play{newest}; "
                "raise --faults.stall-seconds, or look at the environment"
            )

    pool = ThreadPoolExecutor(threads)
    try:
        while waiting or active:
            fill()
            collect()
            for completion in engine.step() if engine.pending else ():
                seat = active[completion.session]
                assert seat.player is not None
                stepping[pool.submit(seat.player.turn, completion)] = seat
            collect()
            check_progress()
        for env in idle:
            with contextlib.suppress(EnvFault):  # its episodes are over
                env.close()
    except Exception:
        wait(stepping)
        for env in [*(seat.env for seat in active.values() if seat.env is not None), *idle]:
            with contextlib.suppress(Exception):  # the first error is the one to be seen
                env.close()
        raise
    finally:
        # After an interrupt nobody waits for an environment that may hang.
        pool.shutdown(wait=False, cancel_futures=True)
    return Played([done[i] for i in range(len(jobs))], broken, stood_still)
