"""A scripted agent that is now and then unsure, and rules by which its episodes fork."""

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from rollout_cases import CHAT, WORDS
from scripted_engine import FakeEngine

from agent_envs.core import PlayableEnv
from agent_envs.identity.env import IdentityEnv
from agents.engine.base import Request
from agents.rollout.forking.settings import ForkPlan, ForkPoint, Sampling
from agents.rollout.play import Played, rollout
from agents.rollout.settings import FaultSettings, ReActSettings
from agents.tree.episode import Episode, Job

GROUP = 8


def say(request: Request, history: tuple[int, ...]) -> Sequence[int]:
    """The word that was shown last, or, in half of the turns, another; decided by the seed alone."""
    rng = Random(request.seed)
    word = re.findall(r"word: (\w+)", CHAT.decode(history + request.tokens))[-1]
    return (*CHAT.encode(f"SAY({word if rng.random() < 0.5 else rng.choice(WORDS)})"), CHAT.end_id)


def unsure(request: Request, tokens: Sequence[int]) -> Sequence[float]:
    rng = Random(request.seed + 1)
    return [3 * rng.random() for _ in tokens]


def engine(**options: Any) -> FakeEngine:
    return FakeEngine(say, CHAT.stop_ids, entropy=unsure, vocabulary=20, **options)


def rule(fork: ForkPoint, rng: Random) -> int:
    """None, one or two forks; more where it is more unsure than at first."""
    rise = fork.entropy[0] - fork.first_entropy[0]
    return sum(rng.random() < 0.4 + rise for _ in range(2))


def plan(**options: Any) -> ForkPlan:
    return ForkPlan(Sampling(**{"group": GROUP, "initial": 3, "tokens": 2} | options), rule)


def play(
    jobs: Sequence[Job],
    how: ForkPlan | None,
    make_env: Callable[[], PlayableEnv] = IdentityEnv,
    settings: ReActSettings | None = None,
    retries: int = 2,
    exact: bool = True,
    **options: Any,
) -> Played:
    faults = FaultSettings(retries=retries)
    return rollout(make_env, engine(**options), CHAT, jobs, settings, plan=how, faults=faults, exact=exact)


def bits(episode: Episode) -> Any:
    """Everything that was recorded of an episode, and where it came from."""
    return (
        *(episode.job.id, episode.root.tokens, episode.texts, episode.forked_from, episode.inherited, episode.success),
        [(a.tokens, a.logp, a.entropy, a.reward, s.tokens, s.terminated, s.truncated) for a, s in episode.turns],
    )
