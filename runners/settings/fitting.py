"""Settings that must fit each other: checked before anything is made."""

from dataclasses import fields

from agents.judge import JudgeKind
from agents.rollout.search.settings import ToTSettings
from algorithms.base import idle
from algorithms.formulas.mismatch import Correction, Masked
from runners.command_line.errors import UserError
from runners.settings.judge import judge_settings
from runners.settings.learner_ranks import FSDP
from runners.settings.old_logp import OldLogp
from runners.settings.run_settings import RunSettings
from runners.settings.train_settings import Train


def check_fit(settings: RunSettings, *, begun: bool = False) -> None:
    """Raises UserError for sizes that do not fit each other, and for settings that the algorithm gives no effect.

    A run that was ``begun`` may hold settings without effect: earlier versions took them.
    """
    train, algorithm = settings.train, settings.algorithm
    sampling, needs = algorithm.sampling, algorithm.needs
    if sampling.initial is not None and sampling.group > train.slots:
        raise UserError(
            f"--slots {train.slots} must hold the {sampling.group} episodes of a task, which fork: raise it"
        )
    if sampling.resample and train.staleness:
        raise UserError(
            f"--{train.algo}.resample waits for an update's episodes before it draws others: leave --staleness out"
        )
    if needs.continuations and (train.staleness or train.overprovision):
        flag = "--staleness" if train.staleness else "--overprovision"
        raise UserError(
            f"{train.algo} plays on from an update's states with the policy of that update: leave {flag} out"
        )
    if train.overprovision:
        alone = {
            f"--{train.algo}.resample": bool(sampling.resample),
            f"--algo {train.algo}, whose episodes fork,": sampling.initial is not None,
            "--agent tot": isinstance(settings.agent, ToTSettings),
        }
        for other in (name for name, there in alone.items() if there):
            raise UserError(f"--overprovision does not work with {other}: leave one of them out")
        if train.partial_rollouts and train.overprovision > (tasks := train.episodes // sampling.group):
            raise UserError(
                f"--overprovision {train.overprovision} must be at most the {tasks} tasks of an update: what "
                "--partial-rollouts goes on with must end in a later one"
            )
    settings.check_groups()
    if not begun:
        for name, need in idle(algorithm).items():
            flag = f"--{train.algo}.{name}".replace("_", "-")
            raise UserError(f"{flag} only works with {need}: leave it out, or set that too")
    if train.quantize != "none" and (train.engine != "hf" or settings.engine.merge):
        raise UserError("--quantize works with --engine hf, unmerged: other engines would sample from other weights")
    if train.ranks.kind == FSDP:
        if train.backend[0] == "local":
            raise UserError(f"--learner {train.learner} leaves no whole model to play with: set --workers 1 or more")
        if train.quantize != "none":
            raise UserError(
                f"--learner {train.learner} cannot cut quantised weights: leave --quantize out, or take ddp:N"
            )
        judge = judge_settings(settings)
        if judge is not None and judge.kind == JudgeKind.POLICY:
            raise UserError(f"--learner {train.learner} leaves no whole model to judge with: take another --judge.kind")
    if train.correction == Correction.TOKEN_MASK and train.masked == Masked.LEFT_OUT and needs.token_critic:
        raise UserError(
            f"{train.algo} values every sampled token, so none can be left out: take --masked counted, or "
            "--correction sequence_mask"
        )
    if train.old_logp == OldLogp.ENGINE and (needs.critic or needs.token_critic) and not train.staleness:
        raise UserError(f"{train.algo} needs the trainer's forward for its values: leave --old-logp engine out")
    if train.from_played and not needs.ratios:
        raise UserError(
            f"--staleness: with these settings {train.algo}'s loss has no ratio to the policy that played: add "
            "--old-logp trainer, which weights what is old"
        )
    if train.replay_steps and not needs.replay:
        raise UserError(f"--replay-steps needs a critic that can learn from earlier episodes; {train.algo} has none")
    if train.replay_body and needs.token_critic:
        raise UserError(f"--replay-body needs a critic that shares its body with the policy; {train.algo} has none")
    if train.value_updates and not needs.replay:
        raise UserError(f"--value-updates needs a critic that can learn alone; {train.algo} has none")
    if settings.critic is None and not begun:
        (default,) = (f.default for f in fields(Train) if f.name == "value_lr")
        if train.value_lr != train.usual().get("value_lr", default):
            raise UserError(f"--value-lr needs a critic, and {train.algo} has none: leave it out")
