"""Plays many episodes at once on one engine.

Invariant: the episodes come back in the order of the jobs, and what an episode samples depends on its own job only, not
on which others are played beside it (up to the rounding of a batched matrix product).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from time import monotonic

from agent_envs.core import TextEnv
from agents.chat import Chat
from agents.engine.base import Completion, Engine
from agents.react import Episode, Job, ReAct, ReActSettings
from agents.tree import Node, graft

_GRACE = 0.02
"""Seconds that the engine waits for an environment before it goes on without it. Waiting for the fast ones keeps the
make-up of the engine's batches, and with it the last bit of every number, the same from run to run."""


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
    as it ends. Environments step in ``threads`` threads, so that a slow one never holds up the others.
    """
    settings = settings or ReActSettings()
    clock = clock or Clock()
    done: dict[int, Episode] = {}
    waiting = deque(enumerate(jobs))
    active: dict[int, ReAct] = {}
    idle: list[TextEnv] = []
    stepping: dict[Future[None], tuple[int, float]] = {}
    patience = _GRACE

    def advance(session: int, request_of: Callable[[ReAct], object]) -> None:
        player = active[session]
        request = request_of(player)
        if request is not None:
            engine.submit(request)  # type: ignore[arg-type]
            return
        if player.episode.turns:
            engine.close_session(session)
        idle.append(active.pop(session).env)
        done[session] = player.episode
        if on_episode:
            on_episode(player.episode)

    with ThreadPoolExecutor(threads) as pool:
        try:
            while waiting or active:
                while waiting and len(active) < engine.slots:
                    session, job = waiting.popleft()
                    env = idle.pop() if idle else make_env()
                    active[session] = ReAct(env, chat, job, session, settings)
                    advance(session, ReAct.start)
                started = monotonic()
                for completion in engine.step() if engine.pending else ():
                    future = pool.submit(_act, active[completion.session], completion)
                    stepping[future] = (completion.session, monotonic())
                stepped = monotonic()
                clock.engine += stepped - started
                if stepping:
                    oldest = min(since for _, since in stepping.values())
                    wait(stepping, timeout=max(0.0, oldest + patience - stepped))
                    if not all(f.done() for f in stepping):
                        patience = 0.0
                        if not engine.pending:  # nothing to compute, nothing to hold up
                            wait(stepping, return_when=FIRST_COMPLETED)
                    for future in [f for f in stepping if f.done()]:
                        session, _ = stepping.pop(future)
                        future.result()
                        advance(session, ReAct.next_request)
                    clock.env += monotonic() - stepped
        finally:
            for player in active.values():
                player.env.close()
            for env in idle:
                env.close()
    return [done[i] for i in range(len(jobs))]


def _act(player: ReAct, completion: Completion) -> None:
    player.act(completion)


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
        graft(roots[key], ((_alone(action), _alone(state)) for action, state in episode.turns))
    return list(roots.values())


def _alone(node: Node) -> Node:
    """The node without what follows it: episodes keep their own chain when their nodes are grafted into a tree."""
    copy = Node(**{**vars(node), "children": []})
    return copy
