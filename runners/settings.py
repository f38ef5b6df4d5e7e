"""What a training run can be told; every part's own settings are put beside these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from agent_envs import registry
from agent_envs.isolation.hosts import HostSettings
from agents.engine import SamplingSettings
from agents.judge import JudgeSettings
from agents.model.actor_critic import LoraSettings
from agents.model.value_head import CriticSettings, SeparateCriticSettings
from agents.rollout.play import FaultSettings
from agents.rollout.react import ReActSettings
from agents.rollout.search.settings import ToTSettings
from agents.text.chat import ChatSettings
from algorithms import algorithm_class
from algorithms.formulas.mismatch import Correction
from runners import attribution_block
from runners.models import TINY
from runners.pretrain import PretrainSettings


class Agent(StrEnum):
    """How a task is played: one action for every state, or a search."""

    REACT = "react"
    TOT = "tot"


@dataclass(frozen=True)
class Train:
    """Train an agent with reinforcement learning over many turns."""

    env: str = "wiki"
    """Environment to learn; its settings are the flags --ENV.…"""
    algo: str = "selfac"
    """Algorithm; its hyper-parameters are the flags --ALGO.…"""
    agent: Agent = Agent.REACT
    """react: one action for every state. tot: several, a search led by the critic; its settings are the flags --tot.…
    Evaluations during the run play react in any case: they measure the policy."""
    model: str = TINY
    """`tiny` (made here, first, in some minutes), or a Hugging Face folder or hub name with a chat template."""
    out: Path | None = None
    """Run folder; by default runs/ENV-ALGO-SEED-TIME."""
    init_from: Path | None = None
    """A run folder to begin from: what it learned becomes part of the base model, and of the reference of the KL."""
    seed: int = 0
    """Seed of everything random in the run; the same seed plays the same episodes."""
    updates: int = 60
    """How often episodes are played and learned from."""
    env_steps: int = 0
    """Environment steps (turns of all episodes) after whose update the run ends, instead of after `updates`; 0: off."""
    episodes: int = 128
    """Episodes per update; an algorithm with groups plays episodes / group tasks."""
    minibatches: int = 4
    """Gradient steps per update and epoch; groups are never split."""
    epochs: int = 1
    """Passes over the episodes of an update."""
    lr: float = 3e-3
    """Peak learning rate of the policy; it falls to a tenth, linearly in updates or, where set, in env_steps."""
    value_lr: float = 1e-3
    """The same of the value head, or of a critic of its own."""
    value_updates: int = 0
    """First updates in which only the critic learns (of a shared body: only the value head) and the policy stays as it
    is. As many as `updates`: a critic for the policy that is there, for a search or for best-of-n."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm."""
    replay_steps: int = 0
    """Further steps of the critic alone after each update, on minibatches of the last replay_updates updates."""
    replay_updates: int = 4
    """How far back they go, the present update included; a checkpoint keeps these episodes."""
    replay_body: bool = False
    """Let those steps also move what the critic shares with the policy. Otherwise only the value head learns again,
    from what it read when the update learned from these episodes, which costs next to nothing."""
    correction: Correction = Correction.NONE
    """What is done where the engine's probabilities differ from the trainer's: weigh each token by their ratio, or that
    of its episode, truncated at correction_high or masked outside correction_low … correction_high."""
    correction_low: float = 0.0
    """Smallest ratio that teaches, for the masks."""
    correction_high: float = 2.0
    """Largest ratio."""
    temperature: float = 1.0
    """Temperature of sampling and of the trainer's log-probabilities."""
    top_p: float = 1.0
    """Episodes are sampled from the most probable tokens that together have this probability. Below 1 it biases the
    ratio of trainer and engine, of which a warning tells."""
    top_k: int = 0
    """Episodes are sampled from so many of the most probable tokens; 0 is all. It biases the ratio too."""
    token_budget: int = 16384
    """Tokens per forward pass; larger minibatches are cut into subtrees with the same gradient."""
    slots: int = 128
    """Episodes that one worker plays at once."""
    workers: int = 0
    """Processes that play episodes, each in portions of `slots`; 0 plays them in the trainer's own process."""
    exact: bool = True
    """Wait for slow environments, so that the same seed gives the same bits whatever the timing."""
    eval_every: int = 10
    """Updates between evaluations on validation tasks; 0 for none."""
    eval_tasks: int = 128
    """Validation tasks of each."""
    test_tasks: int = 500
    """Test tasks of the evaluations before and after; 0 for none."""
    save_every: int = 1
    """Updates between checkpoints: so many are lost at most when the run is killed."""
    keep_last: int = 2
    """Newest checkpoints that are kept, beside the one that did best on validation tasks."""
    max_skipped: int = 5
    """The run stops after so many steps in a row whose loss or gradient was no number."""
    device: str = "auto"
    """Device of the model: auto, cpu, cuda, …"""
    dtype: str = "float32"
    """Type of the frozen weights: float32, bfloat16 or auto (as saved)."""
    threads: int = 1
    """Threads of torch in this process; small models are fastest with one."""

    def divides_into(self, group: int) -> bool:
        """Whether the episodes of an update make whole groups, at least one for each minibatch."""
        return self.episodes % group == 0 and self.episodes // group >= self.minibatches

    def sampling(self, greedy: bool = False) -> SamplingSettings:
        """How tokens are drawn. Raises ValueError."""
        return SamplingSettings(self.temperature, greedy, self.top_p, self.top_k)

    def __post_init__(self) -> None:
        self.sampling()
        for name in (
            "updates",
            "value_updates",
            "env_steps",
            "replay_steps",
            "eval_every",
            "test_tasks",
            "seed",
            "workers",
        ):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative")
        for name in (
            *("episodes", "minibatches", "epochs", "token_budget", "slots", "eval_tasks", "threads"),
            *("replay_updates", "save_every", "keep_last", "max_skipped"),
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        if not self.replay_steps and (self.replay_body or self.replay_updates != 4):
            raise ValueError("replay_updates and replay_body act with replay_steps only")
        if not 0 <= self.correction_low < 1 < self.correction_high:
            raise ValueError("correction_low must lie in 0..1 and correction_high above 1")
        masks = self.correction in (Correction.TOKEN_MASK, Correction.SEQUENCE_MASK)
        if self.correction_low > 0 and not masks:
            raise ValueError("correction_low acts with correction token_mask or sequence_mask only")
        if self.correction_high != 2.0 and self.correction == Correction.NONE:
            raise ValueError("correction_high acts with a correction only")
        if self.init_from is not None and self.model != TINY:
            raise ValueError("with init_from the base model is that of the earlier run: leave model out")

    @staticmethod
    def adopted(values: Mapping[str, Any]) -> dict[str, Any]:
        """What a settings file says, with the blocks of other programs turned into settings of ours."""
        return attribution_block.adopted(values)


def parts_of(train: Train) -> dict[str, type]:
    """The settings classes that act in a run with these choices."""
    algorithm = algorithm_class(train.algo)
    parts: dict[str, type] = {train.env: registry.env_class(train.env).Config, train.algo: algorithm}
    parts |= {"lora": LoraSettings, "react": ReActSettings, "envs": HostSettings, "faults": FaultSettings}
    if train.agent == Agent.TOT:
        parts["tot"] = ToTSettings
    if algorithm.critic:
        parts["critic"] = CriticSettings
    if algorithm.token_critic:
        parts["critic"] = SeparateCriticSettings
    if algorithm.judged:
        parts["judge"] = JudgeSettings
    if train.init_from is None:
        parts["chat"] = ChatSettings
    if train.model == TINY and train.init_from is None:
        parts["pretrain"] = PretrainSettings
    return parts
