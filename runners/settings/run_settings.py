"""All settings of a training run: its own, and those of every part that acts in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from agent_envs.isolation.host_process import HostSettings
from agents.engine.registry import EngineChoice
from agents.judge import JudgeSettings
from agents.model.settings import CriticSettings, LoraSettings, SeparateCriticSettings
from agents.rollout.registry import AgentChoice
from agents.rollout.settings import FaultSettings, ReActSettings
from agents.text.settings import ChatSettings
from algorithms import Algorithm
from runners.cloning.settings import PretrainSettings
from runners.command_line.errors import UserError
from runners.command_line.parse import named, parse
from runners.command_line.plain import dump, plain
from runners.settings import pretrained
from runners.settings.acting import NAMED, PREFIXES, acting
from runners.settings.play_settings import PlaySettings
from runners.settings.ray_settings import RaySettings
from runners.settings.train_settings import Train


@dataclass(frozen=True)
class RunSettings:
    """All settings of a training run. A part that does not act in the run is None."""

    train: Train
    env: Mapping[str, Any]
    """Settings of each environment in ``train.env``, by its name."""
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
    ray: RaySettings | None = None

    def by_prefix(self) -> dict[str, Any]:
        """The settings of every part that acts, under the prefix of its flags."""
        return {one.prefix: self.env[one.env] if one.env else getattr(self, one.part) for one in acting(self.train)}

    def only_env(self, program: str) -> tuple[str, Any]:
        """Name and settings of the run's one environment. Raises UserError, which names the ``program``, for a run of
        several."""
        if len(self.env) > 1:
            raise UserError(f"{program} takes runs of one environment, and this one has {' and '.join(self.env)}")
        (found,) = self.env.items()
        return found

    def play(self, *, slots: int | None = None, exact: bool | None = None, oracle: bool | None = None) -> PlaySettings:
        """How episodes of this run are played; arguments that are given replace the run's own."""
        react = self.react if oracle is None else replace(self.react, oracle=oracle)
        slots = self.train.slots if slots is None else slots
        exact = self.train.exact if exact is None else exact
        engine, agent = self.engine_choice, AgentChoice(self.train.agent, self.agent)
        return PlaySettings(self.env, react, self.hosts, self.faults, slots, exact, engine, agent)

    def check_groups(self) -> None:
        """Raises UserError unless the episodes of an update make whole groups, at least one for each minibatch."""
        train, group = self.train, self.algorithm.sampling.group
        if train.episodes % group or train.episodes // group < train.minibatches:
            raise UserError(
                f"--episodes {train.episodes} must be a multiple of the group of {group}, with at least one task for "
                f"each of the {train.minibatches} minibatches"
            )

    @property
    def engine_choice(self) -> EngineChoice:
        return EngineChoice(self.train.engine, self.engine)

    def plain(self) -> dict[str, Any]:
        """All settings as plain values, as a settings file holds them."""
        return {**self._top(), **plain(self.by_prefix())}

    def written(self) -> str:
        """YAML that ``--config`` reads back."""
        return dump(self._top(), self.by_prefix())

    def _top(self) -> dict[str, Any]:
        """The run's own settings as plain values. One environment is written as its name alone."""
        top: dict[str, Any] = plain(self.train)
        if len(self.env) == 1:
            top["env"] = self.train.env[0]
            del top["mix"]
        else:
            top["mix"] = list(self.train.shares)
        return top


def read_settings(argv: Sequence[str], about: str = "") -> RunSettings:
    """The settings that a command line names. Raises UserError."""
    train, parts = parse(Train, parts_of, argv, about=about)
    # A settings file may hold every setting, as that of a run does: only flags say what was meant.
    flags = named(argv)[0]
    if train.env_steps and {"env_steps", "updates"} <= flags:
        raise UserError("--updates does not act with --env-steps, which ends the run: leave out one of them")
    if not train.eval_every and "eval_tasks" in flags:
        raise UserError("--eval-tasks does not act with --eval-every 0, which evaluates nothing during the run")
    return settings_of(train, parts)


def settings_of(train: Train, parts: Mapping[str, Any]) -> RunSettings:
    """The settings of a run from those of its parts, by the prefix of their flags (`parts_of`)."""
    there = acting(train)
    envs = {one.env: parts[one.prefix] for one in there if one.env}
    return RunSettings(train, envs, **{one.part: parts[one.prefix] for one in there if not one.env})


def own_flags() -> set[str]:
    """What no environment, agent or engine may be called: names of a run's own flags, and of their parts."""
    return {PREFIXES.get(f.name, f.name) for f in fields(RunSettings)} | {f.name for f in fields(Train)} | {"top"}


def parts_of(train: Train) -> dict[str, Any]:
    """Settings classes that act in a run with these choices, by the prefix of their flags; for an adapter of a
    pre-trained model, its settings.

    Raises ValueError where two of them would have the same prefix, or one that of a flag of the run itself.
    """
    own = own_flags()
    result: dict[str, Any] = {}
    for one in acting(train):
        if one.prefix in result or ((one.env or one.part in NAMED) and one.prefix in own):
            kind = "environment" if one.env else one.part
            raise ValueError(
                f"the {kind} cannot be called {one.prefix!r}: --{one.prefix} names other settings; "
                "rename its entry point"
            )
        result[one.prefix] = one.settings
    if (preset := pretrained.preset_of(train.model, train.init_from)) is not None:
        result["lora"] = LoraSettings(**preset.lora)
    return result
