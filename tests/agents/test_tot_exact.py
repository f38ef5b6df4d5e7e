"""Searches on the real engine, led by the critic: what they recorded and went by is what plain forwards say."""

import functools

import pytest
import torch
from rollout_cases import CHAT, jobs
from tree_cases import truth, wake

from agent_envs.identity.config import IdentityConfig
from agent_envs.identity.env import IdentityEnv
from agents.engine.hf import HFEngine
from agents.model.actor_critic import ActorCritic
from agents.model.state_values import Critic
from agents.rollout.play import rollout
from agents.rollout.search.scorers import scorer_of
from agents.rollout.search.settings import Rank, ScorerKind, Scoring, SearchPlan, Strategy, ToTSettings
from agents.rollout.settings import ReActSettings
from agents.tiny.model import TinySettings, build_model
from agents.tree import Kind
from agents.tree.episode import Searched
from agents.tree.merge import grow
from agents.tree.packing import pack

TOLERANCE = 1e-5
SETTINGS = ReActSettings(max_action_tokens=5, max_tokens=300)
PROMPT = tuple(CHAT.critic_prompt())
HOW = {
    "bfs": ToTSettings(branch=3, beam=2, rank=Rank.SCORE),
    # States that are taken up again later have no session any more: they are read anew.
    "best_first": ToTSettings(branch=3, search=Strategy.BEST_FIRST, beam=1, nodes=30),
}


@functools.cache
def model() -> ActorCritic:
    """Random weights, scaled until attention matters."""
    base = build_model(CHAT.tokenizer, TinySettings(width=32, mlp=48), seed=0)
    with torch.no_grad():
        for parameter in base.parameters():
            if parameter.dim() > 1:
                parameter.mul_(3)
    found = ActorCritic(base)
    wake(found)
    return found


def searched(how: ToTSettings, n: int = 3, kind: ScorerKind = ScorerKind.VALUE) -> list[Searched]:
    engine = HFEngine(model().model, CHAT.stop_ids, max_length=300, slots=32)
    scoring = Scoring(kind)
    env = functools.partial(IdentityEnv, IdentityConfig(max_turns=4))
    scorer = scorer_of(scoring, Critic(model(), PROMPT))
    plan = SearchPlan(how, scoring)
    played = rollout(env, engine, CHAT, jobs(n), SETTINGS, search=plan, scorer=scorer)
    return [e for e in played.episodes if isinstance(e, Searched)]


@pytest.mark.parametrize("how", HOW)
@torch.no_grad()
def test_recorded_numbers_are_those_of_separate_forwards(how: str) -> None:
    found = searched(HOW[how])
    roots = [e.root for e in found]
    logp_N, value_S = truth(model(), roots, PROMPT)
    said = [node for root in roots for node in root.walk() if node.kind is Kind.ACTION]
    recorded_N = torch.tensor([x for action in said for x in action.logp])
    assert len(said) > 15 and (recorded_N - logp_N).abs().max() <= TOLERANCE
    assert (recorded_N - logp_N.roll(1)).abs().max() > 0.1, "the control: one token off"
    batch = pack([tree.root for tree in grow(found)], PROMPT)
    out = model()(batch)
    assert (out.logp_T[batch.action_T >= 0] - logp_N).abs().max() <= TOLERANCE
    assert out.value_S is not None and (out.value_S - value_S).abs().max() <= TOLERANCE


@torch.no_grad()
def test_the_critic_asks_about_what_is_wanted_only() -> None:
    engine = HFEngine(model().model, CHAT.stop_ids, max_length=300, slots=32)
    env = functools.partial(IdentityEnv, IdentityConfig(max_turns=4))
    episodes = rollout(env, engine, CHAT, jobs(3, 3), SETTINGS).episodes
    critic = Critic(model(), PROMPT)
    values = critic.values(episodes)
    assert [len(v) for v in values] == [len(e.turns) + 1 for e in episodes]
    for episode, value in zip(episodes, values, strict=True):
        _, value_S = truth(model(), [episode.root], PROMPT)
        assert (torch.tensor(value) - value_S).abs().max() <= TOLERANCE
    assert max(v[-1] for v in values) - min(v[-1] for v in values) > 0.01, "the control: values differ"
    whole = critic.encoded_tokens
    last = critic.last(episodes)
    assert torch.tensor(last).sub(torch.tensor([v[-1] for v in values])).abs().max() <= TOLERANCE
    prompts = (critic.encoded_tokens - whole - sum(len(r) for r in _raw(episodes))) / len(PROMPT)
    assert prompts <= len(episodes) and critic.encoded_tokens - whole < whole
    assert critic.values([]) == []
    small = Critic(model(), PROMPT, token_budget=700)
    again = small.values(episodes)
    assert max(abs(a - b) for x, y in zip(values, again, strict=True) for a, b in zip(x, y, strict=True)) <= TOLERANCE


def _raw(episodes: list) -> list[list[int]]:
    """The tokens of the merged trees."""
    return [[t for n in tree.root.walk() for t in n.tokens] for tree in grow(episodes)]


def test_the_critic_leads() -> None:
    """At every depth the states that go on are those which the critic values most."""
    for e in searched(HOW["bfs"], n=4):
        _, value_S = truth(model(), [e.root], PROMPT)
        states = [n for n in e.root.walk() if n.kind is Kind.STATE]
        value = {id(n): float(v) for n, v in zip(states, value_S.detach(), strict=True)}
        level = [e.root]
        while level := [a.children[0] for s in level for a in s.children]:
            went_on = [n for n in level if n.children]
            stayed = [n for n in level if not n.children and not n.terminated and not n.truncated]
            if went_on and stayed:
                assert min(value[id(n)] for n in went_on) > max(value[id(n)] for n in stayed)


def test_scores_put_together() -> None:
    (e,) = searched(ToTSettings(branch=1), n=1)
    critic = Critic(model(), PROMPT)
    mixed = scorer_of(Scoring(ScorerKind.VALUE_LOGPROB, weight=0.5), critic).scores([e])[0]
    mean = sum(sum(a.logp) for a, _ in e.turns) / len(e.turns)
    assert mixed == pytest.approx(critic.last([e])[0] + 0.5 * mean, abs=1e-5)
    assert scorer_of(Scoring(ScorerKind.LOGPROB), None).scores([e]) == [pytest.approx(mean)]
