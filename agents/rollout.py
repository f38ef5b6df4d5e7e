"""Plays many episodes at once on one engine.

Invariant: the episodes come back in the order of the jobs, and what an episode samples depends on its own job only, not
on which others are played beside it (up to the rounding of a batched matrix product).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from time import monotonic

from agent_envs.core import TextEnv
from agents.chat import Chat
from agents.engine.base import Completion, Engine, Request
from agents.react import Episode, Job, ReAct, ReActSettings
from agents.tree import Node, graft

_STALL, _PATIENCE = 0.1, 1.0
"""Seconds without any environment answering, and seconds in all, after which the engine goes on without the rest; from
then on it waits for none. Waiting for the fast ones keeps the make-up of the engine's batches, and with it the last bit
of every number, the same from run to run."""


@dataclass
class Clock:
    """Where the time of a rollout went, in seconds."""

    engine: float = 0.0
    env: float = 0.0
    """Time the engine stood still for environments; what they did meanwhile is not counted."""


def rollout(
    make_env: Callable[[], TextEnv],
    engine: Engine,
    chat: Chat,
    jobs: Sequence[Job],
    settings: ReActSettings | None = None,
    *,
    on_episode: Callable[[Episode], None] | None = None,
    threads: int = 8,
    clock: Clock | None = None,
) -> list[Episode]:
    """Plays ``jobs`` and returns their episodes in the same order.

    ``make_env`` is called at most once per open slot; environments are used again. ``on_episode`` hears of each episode
    as it ends. Environments reset and step in ``threads`` threads, so that a slow one never holds up the others.
    """
    settings = settings or ReActSettings()
    clock = clock or Clock()
    done: dict[int, Episode] = {}
    waiting = deque(enumerate(jobs))
    active: dict[int, ReAct] = {}
    idle: list[TextEnv] = []
    stepping: dict[Future[Request | None], int] = {}
    patient = True

    def fill() -> None:
        while waiting and len(active) < engine.slots:
            session, job = waiting.popleft()
            env = idle.pop() if idle else make_env()
            player = active[session] = ReAct(env, chat, job, session, settings)
            stepping[pool.submit(player.start)] = session

    def collect() -> None:
        """Takes what the environments answered, in the order in which they were asked."""
        nonlocal patient
        started = monotonic()
        if patient:
            patient = _settle(stepping)
        if stepping and not engine.pending:  # nothing to compute, nothing to hold up
            wait(stepping, return_when=FIRST_COMPLETED)
        for future in [f for f in stepping if f.done()]:
            advance(stepping.pop(future), future.result())
        clock.env += monotonic() - started

    def advance(session: int, request: Request | None) -> None:
        if request is not None:
            engine.submit(request)
            return
        player = active.pop(session)
        if player.episode.turns:
            engine.close_session(session)
        idle.append(player.env)
        done[session] = player.episode
        if on_episode:
            on_episode(player.episode)

    with ThreadPoolExecutor(threads) as pool:
        try:
            while waiting or active:
                fill()
                collect()
                started = monotonic()
                for completion in engine.step() if engine.pending else ():
                    player = active[completion.session]
                    stepping[pool.submit(_act, player, completion)] = completion.session
                clock.engine += monotonic() - started
                collect()
        finally:
            wait(stepping)
            for env in [*(player.env for player in active.values()), *idle]:
                env.close()
    return [done[i] for i in range(len(jobs))]


def _act(player: ReAct, completion: Completion) -> Request | None:
    player.act(completion)
    return player.next_request()


def _settle(stepping: Collection[Future[Request | None]]) -> bool:
    """Waits as long as environments keep answering; False when some of them are slow."""
    began, before = monotonic(), -1
    while (late := sum(not f.done() for f in stepping)) and monotonic() - began < _PATIENCE:
        if late == before:
            return False
        before = late
        wait(stepping, timeout=_STALL)
    return not late


def trees(episodes: Sequence[Episode]) -> list[Node]:
    """One tree per task, in the order of first appearance: the episodes of a group share what they have in common."""
    roots: dict[tuple[str, tuple[int, ...]], Node] = {}
    for episode in episodes:
        if not episode.turns:
            continue
        root = episode.root
        key = (episode.job.task.id, root.tokens)
        if key not in roots:
            roots[key] = Node(root.kind, root.tokens, anchor=root.anchor)
        # Episodes keep their own chain: what is grafted are nodes without what follows them.
        turns = ((replace(action, children=[]), replace(state, children=[])) for action, state in episode.turns)
        graft(roots[key], turns)
    return list(roots.values())
