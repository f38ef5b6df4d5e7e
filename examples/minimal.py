"""GRPO from scratch in one file: play, pack, score, step, on the environment `identity`.

This is all that `turnwise train --env identity --algo grpo` does, without its records, checkpoints and progress bars:

    environment --play--> episodes --merge, pack--> one batch --actor-critic--> log-probs --algorithm--> loss --> step

Run it with ``python examples/minimal.py``. On a laptop's processor it takes less than a minute.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from rich.console import Console
from transformers import AutoModelForCausalLM, AutoTokenizer

from agent_envs.core import Task
from agent_envs.identity.env import IdentityEnv
from agents.engine.base import Engine, SamplingSettings
from agents.engine.registry import EngineChoice, Opening
from agents.model.actor_critic import ActorCritic
from agents.model.settings import LoraSettings
from agents.rollout.play import rollout
from agents.rollout.settings import ReActSettings
from agents.text.chat import Chat
from agents.tiny.settings import TinySettings
from agents.tree.episode import Episode, Job
from agents.tree.merge import grow
from agents.tree.packing import pack
from algorithms.grpo import GRPO
from runners.cloning.settings import PretrainSettings
from runners.cloning.tiny_model import ensure_tiny


@dataclass(frozen=True)
class Settings:
    """Everything that can be chosen. The same settings give the same numbers."""

    updates: int = 12
    tasks: int = 8
    """Tasks of an update; each is played ``algorithm.group`` times."""
    lr: float = 3e-3
    seed: int = 0
    algorithm: GRPO = GRPO(group=8)  # noqa: RUF009 (it is frozen)
    react: ReActSettings = ReActSettings(max_action_tokens=16, max_tokens=256)  # noqa: RUF009
    pretrain: PretrainSettings = PretrainSettings(  # noqa: RUF009
        flaw=0.5, demonstrations=200, steps=200, shape=TinySettings(width=64, mlp=128)
    )


def load(settings: Settings, env: IdentityEnv, console: Console) -> tuple[ActorCritic, Chat, Engine]:
    """A small language model with LoRA, its chat template, and an engine that samples from it.

    The model has read demonstrations with mistakes, so there is something to learn. Any Hugging Face causal language
    model with a chat template can stand here.
    """
    folder = str(ensure_tiny([env], settings.pretrain, console))
    chat = Chat(AutoTokenizer.from_pretrained(folder))
    model = ActorCritic(AutoModelForCausalLM.from_pretrained(folder), LoraSettings(), critic=None, seed=settings.seed)
    slots = settings.tasks * settings.algorithm.group
    opening = Opening(model.model, folder, chat.stop_ids, settings.react.max_tokens, slots, model.device)
    return model, chat, EngineChoice().open(opening)


def play(settings: Settings, engine: Engine, chat: Chat, tasks: Sequence[Task], samples: range) -> list[Episode]:
    """Plays every task once for each number in ``samples``; each number draws its own tokens."""
    jobs = [Job(task, sample, run_seed=settings.seed) for task in tasks for sample in samples]
    return rollout(IdentityEnv, engine, chat, jobs, settings.react).episodes


def success(episodes: Sequence[Episode]) -> float:
    """Share of the episodes that succeed."""
    return sum(bool(episode.success) for episode in episodes) / len(episodes)


def learn(model: ActorCritic, optimizer: torch.optim.Optimizer, algorithm: GRPO, episodes: Sequence[Episode]) -> float:
    """One gradient step on the episodes of some tasks; returns the loss."""
    # The episodes of a task share what they have in common: a tree. All trees lie in one row of tokens.
    trees = grow(episodes, least=algorithm.group)
    batch = pack([tree.root for tree in trees], device=model.device)
    # One forward pass. The ratio's denominator is the trainer's own log-probability, not the engine's.
    new = model(batch)
    batch = replace(batch, old_logp_T=new.logp_T.detach())
    credit = algorithm.credit(batch, new.detach())
    loss = algorithm.loss(batch, new, credit).total
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.policy_parameters(), 1.0)
    optimizer.step()
    return float(loss.detach())


def train(settings: Settings, console: Console) -> tuple[float, float]:
    """Trains on training tasks; returns success on validation tasks, played greedily, before and after."""
    env = IdentityEnv()
    model, chat, engine = load(settings, env, console)
    optimizer = torch.optim.Adam(model.policy_parameters(), lr=settings.lr)
    order = torch.randperm(len(env.tasks("train")), generator=torch.Generator().manual_seed(settings.seed))
    held_out = list(env.tasks("valid"))

    def validate() -> float:
        engine.sampling = SamplingSettings(greedy=True)
        return success(play(settings, engine, chat, held_out, range(1)))

    before = validate()
    for update in range(settings.updates):
        chosen = [int(i) for i in order[update * settings.tasks : (update + 1) * settings.tasks]]
        tasks = [env.tasks("train")[i] for i in chosen]
        engine.sampling = SamplingSettings(temperature=1.0)
        episodes = play(settings, engine, chat, tasks, range(settings.algorithm.group))
        loss = learn(model, optimizer, settings.algorithm, episodes)
        engine.load(update + 1, model.policy_state())
        console.print(f"update {update + 1:2}  success {success(episodes):.2f}  loss {loss:+.4f}")
    after = validate()
    console.print(f"validation tasks, greedy: {before:.2f} before, {after:.2f} after")
    return before, after


if __name__ == "__main__":
    train(Settings(), Console())
