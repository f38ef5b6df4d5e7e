"""Settings of a training run: its own, and those of every part that acts in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

from agent_envs import registry
from agent_envs.isolation.settings import HostSettings
from agent_envs.ranges import check_ranges
from agents.engine.base import SamplingSettings
from agents.engine.registry import ENGINES, EngineChoice
from agents.judge import JudgeSettings
from agents.model.settings import CriticSettings, LoraSettings, SeparateCriticSettings
from agents.rollout.registry import AGENTS, AgentChoice
from agents.rollout.settings import FaultSettings, ReActSettings
from agents.text.settings import ChatSettings
from algorithms import REGISTRY, Algorithm, algorithm_class
from algorithms.formulas.mismatch import Correction
from runners.cloning.settings import TINY, PretrainSettings
from runners.command_line.parse import parse
from runners.command_line.plain import dump
from runners.settings import attribution_block
from runners.settings.play_settings import PlaySettings

OLD_PRETRAIN = {"foretell": "predict"}
"""Names of settings of the tiny model in run folders of version 0.1."""


DTYPES = ("auto", "float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Train:
    """Train an agent with reinforcement learning over many turns."""

    COMMON: ClassVar = (
        *(
            "env",
            "algo",
            "agent",
            "engine",
            "model",
            "out",
            "init_from",
            "seed",
            "updates",
            "episodes",
            "minibatches",
            "lr",
        ),
        *("value_lr", "temperature", "slots", "workers", "eval_every", "eval_tasks", "test_tasks", "device", "threads"),
    )

    env: str = "wiki"
    """Environment to learn; its settings are the flags --ENV.…"""
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
    """Run folder; by default runs/ENV-ALGO-SEED-TIME."""
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
    temperature: float = 1.0
    """Temperature of sampling and of the trainer's log-probabilities."""
    top_p: float = 1.0
    """Sample from the most probable tokens that together have this probability. Below 1 the trainer-engine ratio is
    biased; a warning says by how much."""
    top_k: int = 0
    """Sample from this many of the most probable tokens; 0 is all. It biases the ratio too."""
    token_budget: int = 16384
    """Tokens per forward pass; larger minibatches are cut into subtrees with the same gradient."""
    slots: int = 128
    """Episodes that one worker plays at once."""
    workers: str = "0"
    """Processes that play episodes, in portions of `slots`; 0 plays them in the trainer's own process. NAME:N takes N
    workers of another backend."""
    exact: bool = True
    """Wait for slow environments, so that runs with the same seed are bit-identical whatever the timing."""
    eval_every: int = 10
    """Updates between evaluations on validation tasks; 0 for none."""
    eval_tasks: int = 128
    """Validation tasks of each evaluation."""
    test_tasks: int = 500
    """Test tasks of the evaluations before and after the run; 0 for none."""
    save_every: int = 1
    """Updates between checkpoints; a killed run loses at most this many."""
    keep_last: int = 2
    """Number of newest checkpoints to keep, besides the one with the best validation success."""
    max_skipped: int = 5
    """The run stops after this many steps in a row whose loss or gradient is not finite."""
    device: str = "auto"
    """Device of the model: auto, cpu, cuda, …"""
    dtype: str = "float32"
    """Type of the frozen weights: float32, bfloat16, float16 or auto (as saved)."""
    threads: int = 1
    """Torch threads in this process; small models are fastest with one."""

    def divides_into(self, group: int) -> bool:
        """Whether the episodes of an update make whole groups, at least one for each minibatch."""
        return self.episodes % group == 0 and self.episodes // group >= self.minibatches

    def sampling(self, greedy: bool = False) -> SamplingSettings:
        """How tokens are drawn. Raises ValueError."""
        return SamplingSettings(self.temperature, greedy, self.top_p, self.top_k)

    def __post_init__(self) -> None:
        self.sampling()
        _ = self.backend
        least_0 = ("seed", "updates", "value_updates", "env_steps", "replay_steps", "eval_every", "test_tasks")
        least_1 = (
            *("episodes", "minibatches", "epochs", "token_budget", "slots", "eval_tasks", "threads"),
            *("replay_updates", "save_every", "keep_last", "max_skipped"),
        )
        check_ranges(self, **dict.fromkeys(least_0, 0), **dict.fromkeys(least_1, 1))
        check_ranges(self, seed=(0, 2**63 - 1), slots=(1, 65_536), threads=(1, 1024), lr=(0, 100), value_lr=(0, 100))
        if not self.max_grad_norm > 0:
            raise ValueError(f"max_grad_norm must be above 0, not {self.max_grad_norm}")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, not {self.dtype!r}")
        if not self.replay_steps and (self.replay_body or self.replay_updates != 4):
            raise ValueError("replay_updates and replay_body only work with replay_steps")
        if not 0 <= self.correction_low < 1 < self.correction_high:
            raise ValueError("correction_low must lie in 0..1 and correction_high above 1")
        masks = self.correction in (Correction.TOKEN_MASK, Correction.SEQUENCE_MASK)
        if self.correction_low > 0 and not masks:
            raise ValueError("correction_low only works with correction token_mask or sequence_mask")
        if self.correction_high != 2.0 and self.correction == Correction.NONE:
            raise ValueError("correction_high only works with a correction")
        if self.init_from is not None and self.model != TINY:
            raise ValueError("with init_from the base model is that of the earlier run: leave model out")

    @property
    def backend(self) -> tuple[str, int]:
        """(name, number) of the rollout workers: "0" is local, "3" three processes, "NAME:3" three of NAME."""
        name, _, count = self.workers.rpartition(":")
        if not (count.isascii() and count.isdecimal()):
            raise ValueError(f"workers must be a number, or NAME:NUMBER of a rollout backend, not {self.workers!r}")
        name = name or ("process" if int(count) else "local")
        if (name == "local") != (not int(count)):
            raise ValueError(f"workers {self.workers}: only the trainer's own process, --workers 0, has no number")
        return name, int(count)

    @staticmethod
    def choices() -> dict[str, Sequence[str]]:
        """The names that a flag can take, for ``--help``."""
        return {"env": registry.names(), "algo": REGISTRY.names(), "engine": ENGINES.names(), "agent": AGENTS.names()}

    @staticmethod
    def adopted(values: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a settings file, with other programs' blocks and version 0.1's names as settings of ours."""
        values = attribution_block.adopted(values)
        if isinstance(pretrain := values.get("pretrain"), Mapping):
            values["pretrain"] = {OLD_PRETRAIN.get(key, key): value for key, value in pretrain.items()}
        if isinstance(values.get("workers"), int):
            values["workers"] = str(values["workers"])
        return values


PREFIXES = {"hosts": "envs"}
"""Flag prefixes that differ from the field of `RunSettings`."""
NAMED = {"env": "env", "algorithm": "algo", "engine": "engine", "agent": "agent"}
"""Fields of `RunSettings` whose prefix is a name: the field of `Train` that holds it."""


@dataclass(frozen=True)
class RunSettings:
    """All settings of a training run. A part that does not act in the run is None."""

    train: Train
    env: Any
    """Settings of the environment ``train.env``."""
    algorithm: Algorithm[Any]
    engine: Any
    """Settings of the engine ``train.engine``."""
    lora: LoraSettings
    react: ReActSettings
    hosts: HostSettings
    faults: FaultSettings
    agent: Any = None
    """Settings of the agent ``train.agent``, beside ``react``."""
    critic: CriticSettings | SeparateCriticSettings | None = None
    judge: JudgeSettings | None = None
    chat: ChatSettings | None = None
    pretrain: PretrainSettings | None = None

    def by_prefix(self) -> dict[str, Any]:
        """The settings of every part that acts, under the prefix of its flags."""
        return {prefix_of(self.train, part): getattr(self, part) for part in classes_of(self.train)}

    def play(self, *, slots: int | None = None, exact: bool | None = None, oracle: bool | None = None) -> PlaySettings:
        """How episodes of this run are played; arguments that are given replace the run's own."""
        react = self.react if oracle is None else replace(self.react, oracle=oracle)
        slots = self.train.slots if slots is None else slots
        exact = self.train.exact if exact is None else exact
        engine, agent = self.engine_choice, AgentChoice(self.train.agent, self.agent)
        return PlaySettings(self.train.env, self.env, react, self.hosts, self.faults, slots, exact, engine, agent)

    @property
    def engine_choice(self) -> EngineChoice:
        return EngineChoice(self.train.engine, self.engine)

    def written(self) -> str:
        """YAML that ``--config`` reads back."""
        return dump(self.train, self.by_prefix())


def read_settings(argv: Sequence[str], about: str = "") -> RunSettings:
    """The settings that a command line names. Raises UserError."""
    train, parts = parse(Train, parts_of, argv, about=about)
    return settings_of(train, parts)


def settings_of(train: Train, parts: Mapping[str, Any]) -> RunSettings:
    """``parts`` by the prefix of their flags, as `parts_of` names them."""
    return RunSettings(train, **{part: parts[prefix_of(train, part)] for part in classes_of(train)})


def parts_of(train: Train) -> dict[str, type]:
    """Settings classes that act in a run with these choices, by the prefix of their flags.

    Raises ValueError where two of them would have the same prefix, or one that of a flag of the run itself.
    """
    own = {PREFIXES.get(f.name, f.name) for f in fields(RunSettings)} | {f.name for f in fields(Train)}
    result = {}
    for part, settings in classes_of(train).items():
        prefix = prefix_of(train, part)
        if prefix in result or (part in NAMED and prefix in own):
            kind = {"env": "environment"}.get(part, part)
            raise ValueError(
                f"the {kind} cannot be called {prefix!r}: --{prefix} names other settings; rename its entry point"
            )
        result[prefix] = settings
    return result


def prefix_of(train: Train, part: str) -> str:
    """The prefix of the flags of a field of `RunSettings`."""
    return getattr(train, NAMED[part]) if part in NAMED else PREFIXES.get(part, part)


def classes_of(train: Train) -> dict[str, type]:
    """Settings classes that act in a run with these choices, by their field of `RunSettings`."""
    algorithm = algorithm_class(train.algo)
    needs = algorithm().needs
    own: dict[str, type] = {
        "lora": LoraSettings,
        "react": ReActSettings,
        "hosts": HostSettings,
        "faults": FaultSettings,
    }
    if (agent := AGENTS.get(train.agent).Config) is not None:
        own["agent"] = agent
    if needs.critic:
        own["critic"] = CriticSettings
    if needs.token_critic:
        own["critic"] = SeparateCriticSettings
    if needs.judge:
        own["judge"] = JudgeSettings
    if train.init_from is None:
        own["chat"] = ChatSettings
    if train.model == TINY and train.init_from is None:
        own["pretrain"] = PretrainSettings
    return {
        "env": registry.env_class(train.env).Config,
        "algorithm": algorithm,
        **own,
        "engine": ENGINES.get(train.engine).Config,
    }
