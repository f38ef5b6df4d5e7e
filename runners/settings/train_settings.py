"""A training run's own settings: the flags without a prefix."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from agent_envs import registry
from agent_envs.ranges import check_name, check_ranges
from agents.engine.base import SamplingSettings
from agents.engine.registry import ENGINES
from agents.model.settings import Attention
from agents.rollout.registry import AGENTS
from algorithms import REGISTRY
from algorithms.formulas.mismatch import Correction, Masked
from runners.cloning.settings import TINY
from runners.settings import attribution_block, pretrained
from runners.settings.learner_ranks import LearnerRanks
from runners.settings.old_logp import OldLogp
from runners.settings.play_settings import check_envs, with_list

OLD_PRETRAIN = {"foretell": "predict"}
"""Names of settings of the tiny model in run folders of version 0.1."""


MOST_WORKERS = 1024
MOST_SHARE = 1000
DTYPES = ("auto", "float32", "bfloat16", "float16")
QUANTIZED = ("none", "int8", "nf4")


@dataclass(frozen=True)
class Train:
    """Train an agent with reinforcement learning over many turns."""

    COMMON: ClassVar[tuple[str, ...]] = (
        *("env", "mix", "algo", "agent", "engine", "model", "out", "init_from", "seed", "updates", "episodes"),
        "minibatches",
        *("lr", "value_lr", "temperature", "slots", "workers", "eval_every", "eval_tasks", "test_tasks"),
        *("device", "threads", "compiled_threads"),
    )

    env: tuple[str, ...] = ("wiki",)
    """Environment to learn, or several for one policy; the settings of each are the flags --ENV.…"""
    mix: tuple[int, ...] = ()
    """Shares of several environments in the tasks of an update, as whole numbers in their order: 2 1 plays two tasks of
    the first for one of the second. By default all have the same."""
    algo: str = "selfac"
    """Algorithm; its hyper-parameters are the flags --ALGO.…"""
    agent: str = "react"
    """How a task is played: react takes one action in every state, tot searches a tree led by the critic (--tot.…).
    Evaluations during the run always play react."""
    engine: str = "hf"
    """Engine that samples the episodes; its settings are the flags --ENGINE.…"""
    model: str = TINY
    """`tiny`, which is made first, or a Hugging Face folder or hub name with a chat template."""
    out: Path | None = None
    """Run folder; by default runs/ENV-ALGO-SEED-TIME (ENV+ENV for several environments)."""
    init_from: Path | None = None
    """A run to start from: its adapter is merged into the base model, which is also the KL reference."""
    seed: int = 0
    """Seed of all random draws; the same seed plays the same episodes."""
    updates: int = 60
    """Number of updates. Each plays episodes and learns from them."""
    env_steps: int = 0
    """Environment steps (turns of all episodes) after which the run ends, in place of `updates`; 0: off."""
    episodes: int = 128
    """Episodes per update; an algorithm with groups plays episodes / group tasks."""
    minibatches: int = 4
    """Gradient steps per update and epoch; groups are never split."""
    epochs: int = 1
    """Passes over the episodes of an update."""
    lr: float = 3e-3
    """Peak learning rate of the policy. It falls linearly to a tenth over the run."""
    value_lr: float = 1e-3
    """Peak learning rate of the value head, or of a separate critic."""
    value_updates: int = 0
    """First updates in which only the critic learns (with a shared body: only the value head). Set it to `updates` to
    train a critic for a fixed policy, for search or best-of-n."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm."""
    max_kl: float = math.inf
    """A step after which the policy is further than this from where the update's ratios start is taken back, and the
    update ends: KL divergence per token, measured on the next minibatch, or after the last step on the first one, which
    takes a forward pass more. inf takes every step. approx_kl in metrics.jsonl is the largest that was measured."""
    replay_steps: int = 0
    """Extra steps of the critic alone after each update, on minibatches of the last `replay_updates` updates."""
    replay_updates: int = 4
    """Number of updates that are replayed, the current one included; checkpoints keep their episodes."""
    replay_body: bool = False
    """Replay steps also train what the critic shares with the policy. Otherwise only the value head learns, from stored
    hidden states, at almost no cost."""
    correction: Correction = Correction.NONE
    """Correction where the engine's probabilities differ from the trainer's: each token is weighted by the ratio of the
    token, or of its episode, truncated at correction_high or masked outside correction_low … correction_high."""
    correction_low: float = 0.0
    """Smallest ratio that the masks keep."""
    correction_high: float = 2.0
    """Largest ratio that is kept, or at which ratios are truncated."""
    masked: Masked = Masked.LEFT_OUT
    """Tokens or episodes that a mask takes out: left_out of every mean, or counted there with weight 0."""
    old_logp: OldLogp = OldLogp.AUTO
    """Log-probabilities from which an update's ratios start: the engine's, those of the policy that played, or the
    trainer's, by an extra forward pass. auto takes the engine's where `staleness` is above 0, and where nothing else
    needs that pass and the last update measured a difference of at most 1e-4."""
    temperature: float = 1.0
    """Temperature of sampling and of the trainer's log-probabilities."""
    top_p: float = 1.0
    """Sample from the most probable tokens that together have this probability. Below 1 the trainer-engine ratio is
    biased; a warning says by how much."""
    top_k: int = 0
    """Sample from this many of the most probable tokens; 0 is all. It biases the ratio too."""
    token_budget: int = 16384
    """Tokens per forward pass; larger minibatches are cut into subtrees with the same gradient."""
    gradient_checkpointing: bool = False
    """Keep only the inputs of every layer for the backward pass, which computes the layers again: less memory, about a
    third more time, the same gradient."""
    slots: int = 128
    """Episodes that one worker plays at once."""
    workers: str = "0"
    """Processes that play episodes, in portions of `slots`; 0 plays them in the trainer's own process. ray:N takes N
    actors of a Ray cluster (--ray.…), NAME:N takes N workers of another backend."""
    learner: str = "local"
    """Processes that learn: local is this one alone; ddp:N is N on this machine, each with all weights; fsdp:N cuts the
    frozen weights over them. On a machine with GPUs, each has one of its own."""
    staleness: int = 0
    """Updates by which the policy that plays may be older than the one that learns. 0 plays an update's episodes when
    it begins. Above 0, workers play the next ones while an update learns, and ratios start from the policy that played.
    With --old-logp trainer they start from the one that learns, and --correction is token_truncate."""
    overprovision: int = 0
    """Tasks that an update begins beyond those it learns from: the first that are played to their end. The rest is
    dropped, or goes on in the next update with `partial_rollouts`."""
    partial_rollouts: bool = False
    """What `overprovision` cuts goes on in the next update, with its policy, until an action is `staleness` updates
    old. Nothing is played ahead then."""
    exact: bool = True
    """Wait for slow environments, so that runs with the same seed are bit-identical whatever the timing."""
    eval_every: int = 10
    """Updates between evaluations on validation tasks; 0 for none."""
    eval_tasks: int = 128
    """Validation tasks of each evaluation and environment."""
    test_tasks: int = 500
    """Test tasks of each environment in the evaluations before and after the run; 0 for none."""
    save_every: int = 1
    """Updates between checkpoints; a killed run loses at most this many."""
    keep_last: int = 2
    """Number of newest checkpoints to keep, besides the one with the best validation success (the mean over the
    environments, where there are several)."""
    max_skipped: int = 5
    """The run stops after this many steps in a row whose loss or gradient is not finite."""
    device: str = "auto"
    """Device of the model: auto, cpu, cuda, …"""
    dtype: str = "float32"
    """Type of the frozen weights: float32, bfloat16, float16 or auto (as saved)."""
    quantize: str = "none"
    """Frozen matrices of the layers in fewer bits: int8, nf4 (4 bits) or none. Needs the extra quantize."""
    attention: Attention = Attention.AUTO
    """Attention of the trained model: flex is FlexAttention and varlen FlashAttention, both for CUDA; blocks are plain
    kernel calls. auto takes flex on CUDA, and blocks anywhere else."""
    threads: int = 1
    """Torch threads in this process; small models are fastest with one."""
    compiled_threads: int = 2
    """Threads in which this process learns, and computes what is compiled in C, on a CPU. Another number changes last
    bits."""
    profile: bool = False
    """Trace the second update (the only one, where there is one): the run folder then has profile/trace.json.gz, and a
    table of where the time went."""

    def sampling(self, greedy: bool = False) -> SamplingSettings:
        """How tokens are drawn. Raises ValueError."""
        return SamplingSettings(self.temperature, greedy, self.top_p, self.top_k)

    def __post_init__(self) -> None:
        self._check_envs()
        self.sampling()
        _ = self.backend, self.ranks
        if self.engine == "openai":
            raise ValueError(
                "engine openai only evaluates (turnwise evaluate --endpoint URL --model NAME): training needs the "
                "tokens that were sampled, and their probabilities"
            )
        least_0 = ("seed", "updates", "value_updates", "env_steps", "replay_steps", "eval_every", "test_tasks")
        least_1 = (
            *("episodes", "minibatches", "epochs", "token_budget", "slots", "eval_tasks"),
            *("replay_updates", "save_every", "keep_last", "max_skipped", "threads", "compiled_threads"),
        )
        check_ranges(self, **dict.fromkeys(least_0, 0), **dict.fromkeys(least_1, 1))
        check_ranges(self, seed=(0, 2**63 - 1), slots=(1, 65_536), lr=(0, 100), value_lr=(0, 100))
        check_ranges(self, threads=(1, 1024), compiled_threads=(1, 1024))
        check_ranges(self, staleness=(0, 64), episodes=(1, 1_000_000), epochs=(1, 10_000), replay_steps=(0, 100_000))
        check_ranges(self, overprovision=(0, 100_000))
        if not self.max_grad_norm > 0:
            raise ValueError(f"max_grad_norm must be above 0, not {self.max_grad_norm}")
        if not self.max_kl > 0:
            raise ValueError(f"max_kl must be above 0, not {self.max_kl}")
        if self.max_kl < math.inf and self.from_played:
            raise ValueError(
                "max_kl does not work with staleness, where ratios start from an older policy: leave one out, or add "
                "old_logp trainer"
            )
        check_name(self, "dtype", DTYPES)
        check_name(self, "quantize", QUANTIZED)
        if not self.replay_steps and (self.replay_body or self.replay_updates != 4):
            raise ValueError("replay_updates and replay_body only work with replay_steps")
        if not 0 <= self.correction_low < 1 < self.correction_high:
            raise ValueError("correction_low must lie in 0..1 and correction_high above 1")
        masks = self.correction in (Correction.TOKEN_MASK, Correction.SEQUENCE_MASK)
        if self.correction_low > 0 and not masks:
            raise ValueError("correction_low only works with correction token_mask or sequence_mask")
        if self.partial_rollouts and not (self.overprovision and self.staleness):
            raise ValueError(
                "partial_rollouts needs overprovision (how many tasks are cut) and staleness (for how many updates "
                "they may go on)"
            )
        if self.ahead and self.backend[0] == "local":
            raise ValueError("staleness needs rollout workers: set --workers 1 or more, or partial_rollouts")
        weighted = self.correction != Correction.NONE or (self.staleness and not self.from_played)
        if self.correction_high != 2.0 and not weighted:
            raise ValueError("correction_high only works with a correction")
        if self.masked != Masked.LEFT_OUT and not masks:
            raise ValueError("masked only works with correction token_mask or sequence_mask")
        if self.init_from is not None and self.model != TINY:
            raise ValueError("with init_from the base model is that of the earlier run: leave model out")
        if self.old_logp == OldLogp.ENGINE and self.correction != Correction.NONE:
            raise ValueError(
                "old_logp engine takes the engine's numbers as they are, and correction compares them with the "
                "trainer's: leave one out"
            )
        if self.quantize != "none" and self.init_from is not None:
            raise ValueError("quantize does not work with init_from: the earlier run's adapter could not be merged")

    def _check_envs(self) -> None:
        check_envs(self.env)
        if not self.mix:
            return
        if len(self.env) == 1:
            raise ValueError("mix has no effect with one environment: leave it out, or name several after --env")
        if len(self.mix) != len(self.env):
            raise ValueError(f"mix needs one number for each of the {len(self.env)} environments, not {len(self.mix)}")
        if low := [share for share in self.mix if not 1 <= share <= MOST_SHARE]:
            raise ValueError(f"mix must hold whole numbers from 1 to {MOST_SHARE}, not {low[0]}")

    @property
    def envs(self) -> str:
        """All environments in one word, for titles and names of folders."""
        return "+".join(self.env)

    @property
    def shares(self) -> tuple[int, ...]:
        """The share of each environment in the tasks of an update."""
        return self.mix or (1,) * len(self.env)

    @property
    def backend(self) -> tuple[str, int]:
        """(name, number) of the rollout workers: "0" is local, "3" three processes, "NAME:3" three of NAME."""
        name, _, count = self.workers.rpartition(":")
        if not (count.isascii() and count.isdecimal()):
            raise ValueError(f"workers must be a number, or NAME:NUMBER of a rollout backend, not {self.workers!r}")
        if int(count) > MOST_WORKERS:
            raise ValueError(f"workers must be at most {MOST_WORKERS} processes, not {count}")
        name = name or ("process" if int(count) else "local")
        if (name == "local") != (not int(count)):
            raise ValueError(f"workers {self.workers}: only the trainer's own process, --workers 0, has no number")
        return name, int(count)

    @property
    def ahead(self) -> int:
        """Updates whose episodes are played while an earlier one learns."""
        return 0 if self.partial_rollouts else self.staleness

    @property
    def from_played(self) -> bool:
        """Whether ratios start from the policy that played, however old it is."""
        start = OldLogp.ENGINE if self.old_logp == OldLogp.AUTO and self.samples_all else self.old_logp
        return bool(self.staleness) and start == OldLogp.ENGINE and self.correction == Correction.NONE

    @property
    def samples_all(self) -> bool:
        """Whether every token can be sampled, so that the engine's probabilities are the policy's."""
        return self.top_p == 1 and not self.top_k

    @property
    def ranks(self) -> LearnerRanks:
        """The processes that learn."""
        return LearnerRanks.of(self.learner)

    def usual(self) -> Mapping[str, Any]:
        """The defaults that depend on what was chosen."""
        preset = pretrained.preset_of(self.model, self.init_from)
        stale = {"correction": Correction.TOKEN_TRUNCATE} if self.staleness and not self.from_played else {}
        return stale if preset is None else {**preset.train, **stale}

    @staticmethod
    def choices() -> dict[str, Sequence[str]]:
        """The names that a flag can take, for ``--help``."""
        return {"env": registry.names(), "algo": REGISTRY.names(), "engine": ENGINES.names(), "agent": AGENTS.names()}

    @staticmethod
    def adopted(values: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a settings file, with other programs' blocks and version 0.1's names as settings of ours."""
        values = with_list(attribution_block.adopted(values))
        if isinstance(pretrain := values.get("pretrain"), Mapping):
            values["pretrain"] = {OLD_PRETRAIN.get(key, key): value for key, value in pretrain.items()}
        for block in (values.get("selfac"), (values.get("naive_ac") or {}).get("formula")):
            if isinstance(block, dict) and not block.get("adaptive_lambda", True):
                del block["adaptive_lambda"]  # there was such a setting, and it was off
        if isinstance(values.get("workers"), int):
            values["workers"] = str(values["workers"])
        return values
