"""Forks on the real engine: what it recorded of every path is what one plain forward of that path says."""

import functools

import pytest
import torch
from fork_cases import GROUP, plan
from rollout_cases import CHAT, jobs, path

from agent_envs.identity.config import IdentityConfig
from agent_envs.identity.env import IdentityEnv
from agents.engine.hf import HFEngine
from agents.model.actor_critic import ActorCritic
from agents.rollout.forking.settings import Measure
from agents.rollout.play import rollout
from agents.rollout.settings import ReActSettings
from agents.tiny.model import TinySettings, build_model
from agents.tree import Batch
from agents.tree.episode import Episode
from agents.tree.merge import grow
from agents.tree.packing import pack

TOLERANCE = 1e-5
SETTINGS = ReActSettings(max_action_tokens=5, max_tokens=300)


@functools.cache
def model() -> ActorCritic:
    """Random weights, scaled until attention matters."""
    base = build_model(CHAT.tokenizer, TinySettings(width=32, mlp=48), seed=0)
    with torch.no_grad():
        for parameter in base.parameters():
            if parameter.dim() > 1:
                parameter.mul_(3)
    return ActorCritic(base, lora=None, critic=None)


@functools.cache
def played(measure: Measure, tokens: int = 2) -> tuple[Episode, ...]:
    engine = HFEngine(model().model, CHAT.stop_ids, max_length=300, slots=2 * GROUP)
    how = plan(measure=measure, tokens=tokens)
    env = functools.partial(IdentityEnv, IdentityConfig(max_turns=5))
    found = rollout(env, engine, CHAT, jobs(3, GROUP), SETTINGS, plan=how).episodes
    assert len(found) == 3 * GROUP and sum(e.forked_from is not None for e in found) >= 6
    return tuple(found)


def worst(episode: Episode, shift: int = 0) -> float:
    """The largest difference of a recorded log-probability or entropy from a plain forward's."""
    tokens = torch.tensor([path(episode)])
    with torch.no_grad():
        logp_TV = model().causal_model(input_ids=tokens, use_cache=False).logits[0].float().log_softmax(-1)
    at, error = len(episode.root.tokens), 0.0
    for action, state in episode.turns:
        here_NV = logp_TV[at - 1 - shift : at - 1 - shift + len(action.tokens)]
        logp_N = here_NV.gather(1, torch.tensor(action.tokens)[:, None])[:, 0]
        entropy_N = -(here_NV.exp() * here_NV).sum(-1)
        error = max(error, float((logp_N - torch.tensor(action.logp)).abs().max()))
        error = max(error, float((entropy_N - torch.tensor(action.entropy)).abs().max()))
        at += len(action.tokens) + len(state.tokens)
    return error


@pytest.mark.parametrize("measure", Measure)
def test_recorded_numbers_are_those_of_a_separate_forward(measure: Measure) -> None:
    assert max(worst(e) for e in played(measure)) <= TOLERANCE
    assert min(worst(e, shift=1) for e in played(measure)) > 0.1, "the control: one token off"


@pytest.mark.parametrize("measure", Measure)
def test_the_tree_has_the_same_numbers_in_one_pass(measure: Measure) -> None:
    trees = grow(played(measure))
    batch: Batch = pack([tree.root for tree in trees])
    with torch.no_grad():
        new = model()(batch)
    mine = batch.action_T >= 0
    assert float((new.logp_T - batch.old_logp_T)[mine].abs().max()) <= TOLERANCE
    assert int(batch.count_L.sum()) == 3 * GROUP
    shared = sum(len(a.tokens) for e in played(measure) for a, _ in e.turns[: e.inherited])
    assert batch.raw_tokens - len(batch) > shared > 0


def test_a_turn_in_two_parts_is_the_turn_in_one() -> None:
    engine = HFEngine(model().model, CHAT.stop_ids, max_length=300, slots=2 * GROUP)
    env = functools.partial(IdentityEnv, IdentityConfig(max_turns=5))
    plain = rollout(env, engine, CHAT, jobs(3, GROUP), SETTINGS).episodes
    found = played(Measure.NEXT_TURN, 3)
    same = [path(a) == path(b) for a, b in zip(found, plain, strict=True) if a.forked_from is None]
    assert len(same) >= 9 and all(same)
    assert not all(path(a) == path(b) for a, b in zip(found, plain, strict=True) if a.forked_from is not None)
