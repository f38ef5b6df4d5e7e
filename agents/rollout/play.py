"""Plays many episodes at once on one engine.

Invariant: the episodes come back in the order of the jobs, and what an episode samples depends on its own job only, not
on which others are played beside it (up to the rounding of a batched matrix product; ``exact`` takes that away too). An
environment that breaks costs its own episode only: it is recorded, played again on a fresh copy, and then given up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent_envs.core import PlayableEnv
from agents.engine.base import Engine
from agents.rollout.forking.policy import BranchingLoop
from agents.rollout.forking.rule import Plan
from agents.rollout.react import ReActSettings
from agents.rollout.scheduler import FaultSettings as FaultSettings
from agents.rollout.scheduler import Loop
from agents.rollout.scheduler import Played as Played
from agents.rollout.scheduler import Stalled as Stalled
from agents.rollout.search.policy import SearchLoop
from agents.rollout.search.scorers import Scorer, Scoring
from agents.rollout.search.settings import ToTSettings
from agents.text.chat import Chat
from agents.tree.episode import Episode, Job


@dataclass(frozen=True)
class SearchPlan:
    """How tasks are searched, and what their states are scored by. It is sent to other processes."""

    tot: ToTSettings
    scoring: Scoring


def rollout(
    make_env: Callable[[], PlayableEnv],
    engine: Engine,
    chat: Chat,
    jobs: Sequence[Job],
    settings: ReActSettings | None = None,
    *,
    plan: Plan | None = None,
    search: SearchPlan | None = None,
    scorer: Scorer | None = None,
    faults: FaultSettings | None = None,
    exact: bool = True,
    on_episode: Callable[[Episode], None] | None = None,
    threads: int = 8,
) -> Played:
    """Plays ``jobs``.

    ``make_env`` is called at most once per open slot, and again for each environment that broke; environments are used
    again. They reset and step in ``threads`` threads. With ``exact`` the engine waits for all that it has asked: the
    same jobs then give the same bits, whatever the timing. Without it a slow environment never holds up the others.
    ``on_episode`` hears of each episode as it ends. With a ``plan`` the jobs of a task, which stand together, are the
    numbers that its episodes may have: some begin, others fork from them (`forking`). With a ``search`` every job
    is one (`search`), which ``scorer`` leads; what comes of it is a `Searched` episode. Raises Stalled.
    """
    options = (make_env, engine, chat, jobs, settings or ReActSettings(), faults or FaultSettings())
    rest = (exact, on_episode, threads)
    if search is not None:
        return SearchLoop(search.tot, scorer, search.scoring.discount, *options, *rest).run()
    return (Loop(*options, *rest) if plan is None else BranchingLoop(plan, *options, *rest)).run()
