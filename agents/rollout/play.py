"""Plays many episodes at once on one engine.

Invariant: the episodes come back in the order of the jobs, and what an episode samples depends on its own job only, not
on which others are played beside it (up to the rounding of a batched matrix product; ``exact`` takes that away too). An
environment that breaks costs its own episode only: it is recorded, played again on a fresh copy, and then given up.
"""

from collections.abc import Callable, Mapping, Sequence

from agent_envs.core import PlayableEnv
from agents.engine.base import Engine
from agents.rollout.forking.policy import Forking
from agents.rollout.forking.settings import ForkPlan
from agents.rollout.forking.slot import ForkSlot
from agents.rollout.quota import FirstGroups, Quota
from agents.rollout.react import Player, ReAct
from agents.rollout.scheduler import Chain, Played, RolloutOptions, Scheduler, Stalled
from agents.rollout.search.policy import Searching
from agents.rollout.search.scorers import Scorer
from agents.rollout.search.settings import SearchPlan
from agents.rollout.search.slot import SearchSlot
from agents.rollout.settings import FaultSettings, ReActSettings
from agents.rollout.slot import MakeEnv, Slot
from agents.text.chat import Chat
from agents.tree.episode import Episode, Job

__all__ = ["Played", "Stalled", "rollout"]


def rollout(
    make_env: MakeEnv | Mapping[str, MakeEnv],
    engine: Engine,
    chat: Chat,
    jobs: Sequence[Job],
    settings: ReActSettings | None = None,
    *,
    player: Player = ReAct,
    plan: ForkPlan | None = None,
    search: SearchPlan | None = None,
    scorer: Scorer | None = None,
    quota: Quota | None = None,
    faults: FaultSettings | None = None,
    exact: bool = True,
    on_episode: Callable[[Episode], None] | None = None,
    threads: int = 8,
    spare: dict[str, list[PlayableEnv]] | None = None,
) -> Played:
    """Plays ``jobs``.

    ``make_env`` is called at most once per open slot, and again for each environment that broke; environments are used
    again. For jobs of several environments it holds a function for each, by `Job.env`, and this holds for each of them.
    Those in ``spare`` are used first, and at the end it holds those that a later rollout may use; without it they are
    closed. They reset and step in ``threads`` threads, those of an `EnvHosts` in one for each of its processes.
    With ``exact`` the engine waits for all environments: the same jobs are then bit-identical, whatever the timing.
    Without it a slow environment never holds up the others.
    ``on_episode`` is called with each episode as it ends. With a ``plan`` the jobs of a task, which stand together, are
    the numbers that its episodes may have: some begin, others fork from them (`forking`). With a ``search`` every job
    is one (`search`), which ``scorer`` leads; what comes of it is a `Searched` episode. With a ``quota`` the
    rollout ends with the first groups that are complete (`quota`). Raises Stalled, and EngineError where the engine
    cannot do what is asked.
    """
    makers = make_env if isinstance(make_env, Mapping) else {"": make_env}
    options = RolloutOptions(
        makers, engine, chat, jobs, settings or ReActSettings(), faults or FaultSettings(), exact, on_episode,
        threads, player, spare,
    )  # fmt: skip
    if search is not None:
        searches = Scheduler[SearchSlot](options)
        return searches.run(Searching(searches, search, scorer))
    if plan is not None:
        forks = Scheduler[ForkSlot](options)
        return forks.run(Forking(forks, plan))
    chains = Scheduler[Slot](options)
    return chains.run(Chain(chains) if quota is None else FirstGroups(chains, quota))
