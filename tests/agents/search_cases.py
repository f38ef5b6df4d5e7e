"""Searches of the scripted agent, which says the shown word in a part of its turns."""

from collections.abc import Callable, Sequence
from typing import Any

from fork_cases import engine
from rollout_cases import CHAT

from agent_envs.core import PlayableEnv
from agent_envs.identity.env import IdentityEnv
from agents.rollout.play import Played, rollout
from agents.rollout.search.scorers import Scorer, scorer_of
from agents.rollout.search.settings import ScorerKind, Scoring, SearchPlan, ToTSettings
from agents.rollout.settings import FaultSettings, ReActSettings
from agents.tree.episode import Episode, Job, Searched

ORACLE = ReActSettings(oracle=True)


def search(
    jobs: Sequence[Job],
    how: ToTSettings,
    kind: ScorerKind = ScorerKind.ORACLE,
    *,
    scorer: Scorer | None = None,
    make_env: Callable[[], PlayableEnv] = IdentityEnv,
    settings: ReActSettings = ORACLE,
    retries: int = 2,
    **options: Any,
) -> Played:
    scoring = Scoring(kind)
    return rollout(
        make_env,
        options.pop("engine", None) or engine(**options),
        CHAT,
        jobs,
        settings,
        search=SearchPlan(how, scoring),
        scorer=scorer or scorer_of(scoring, None),
        faults=FaultSettings(retries=retries),
    )


def searches(played: Played) -> list[Searched]:
    found = [e for e in played.episodes if isinstance(e, Searched)]
    assert len(found) == len(played.episodes)
    return found


def tree_bits(episode: Episode) -> Any:
    """Everything that was recorded of a search."""
    nodes = [
        (n.kind, n.tokens, n.logp, n.reward, n.count, n.terminated, n.truncated, n.success, n.oracle, len(n.children))
        for n in episode.root.walk()
    ]
    return episode.job.id, nodes, episode.texts, episode.success, episode.metrics
