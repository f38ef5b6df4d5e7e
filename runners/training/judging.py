"""Judging: the episodes of an update get labels before they become trees.

Invariant: labels are written on the episodes' own action nodes, and none is invented: an action that the judge did not
label has None. Episodes that the algorithm does not ask about cost no call.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from rich.console import Console

from agents.engine.registry import Opening
from agents.judge import Judge, JudgeError, JudgeKind, JudgeSettings
from agents.judge.base import JUDGES
from agents.judge.critic import CriticJudge
from agents.judge.endpoint import EndpointJudge
from agents.judge.oracle import OracleJudge
from agents.judge.policy import PolicyJudge
from agents.model.actor_critic import ActorCritic
from agents.model.settings import CriticSettings
from agents.text.chat import Chat
from agents.tree.episode import Episode
from algorithms.base import Algorithm, JudgedAlgorithm
from runners.command_line.errors import UserError
from runners.loading.base_model import Base, actor_of
from runners.loading.engine import in_this_process
from runners.run_folder.runs import locate
from runners.settings.run_settings import RunSettings
from runners.settings.train_settings import Train
from runners.statistics.intervals import mean


class Judging:
    """Labels episodes between playing and learning. Raises UserError for an algorithm without a rule for labels."""

    def __init__(self, judge: Judge, algorithm: Algorithm[Any], folder: Path) -> None:
        if not isinstance(algorithm, JudgedAlgorithm):
            name = type(algorithm).__name__
            raise UserError(f"{name} needs a judge: it must derive from algorithms.base.JudgedAlgorithm")
        self.judge, self.algorithm, self.folder = judge, algorithm, folder

    def label(self, episodes: Sequence[Episode]) -> dict[str, float]:
        """Sets the labels of the episodes' actions and returns numbers about them. Raises UserError."""
        started = monotonic()
        played = [episode for episode in episodes if episode.turns]
        number: dict[str, int] = {}
        tree_L = torch.tensor([number.setdefault(e.job.task_id, len(number)) for e in played], dtype=torch.long)
        visit_L = torch.tensor([e.job.sample // self.algorithm.sampling.group for e in played], dtype=torch.long)
        return_L = torch.tensor([e.reward for e in played], dtype=torch.float32)
        asked_L = self.algorithm.asked(return_L, tree_L, visit_L).tolist()
        score_L = self.algorithm.judge_score(return_L, tree_L).tolist()
        requested = [(episode, score) for episode, score, a in zip(played, score_L, asked_L, strict=True) if a]
        row = {"judge_asked": float(len(requested)), "judge_skipped": float(len(played) - len(requested))}
        if requested:
            try:
                verdicts = self.judge.label([episode for episode, _ in requested], [score for _, score in requested])
            except JudgeError as error:
                raise UserError(f"{error}; once it is reachable again, continue with --resume {self.folder}") from None
            for (episode, _), labels in zip(requested, verdicts.labels, strict=True):
                for (action, _), label in zip(episode.turns, labels, strict=True):
                    action.label = label
            row |= label_stats([episode for episode, _ in requested])
            row |= {f"judge_{name}": x for name, x in verdicts.stats.items()}
        return row | {"seconds_judge": monotonic() - started}

    def close(self) -> None:
        self.judge.close()


def label_stats(requested: Sequence[Episode]) -> dict[str, float]:
    """How many of the asked episodes have all their labels, and how labels and outcomes go together.

    ``judge_pos_good`` and the like are shares of the labels that there are: (outcome, label). They sum to 1.
    """
    steps = sorted(len(episode.turns) for episode in requested)
    whole = [all(action.label is not None for action, _ in episode.turns) for episode in requested]
    row = {
        "judge_parsed": mean([float(x) for x in whole]),
        "judge_unparsed": float(len(whole) - sum(whole)),
        "judge_steps_mean": mean([float(n) for n in steps]),
        "judge_steps_p95": float(steps[round(0.95 * (len(steps) - 1))]),
    }
    labels = [(bool(e.success), action.label) for e in requested for action, _ in e.turns if action.label is not None]
    if labels:
        row["judge_good"] = mean([float(good) for _, good in labels])
        for outcome, won in (("pos", True), ("neg", False)):
            for word, label in (("good", True), ("bad", False)):
                row[f"judge_{outcome}_{word}"] = labels.count((won, label)) / len(labels)
    return row


def remote_judge(settings: JudgeSettings | None) -> Judge | None:
    """The judge that needs no model of ours, an endpoint or another package's; it is checked once. Raises UserError."""
    if settings is None or settings.kind is None or settings.kind in set(JudgeKind) - {JudgeKind.ENDPOINT}:
        return None
    try:
        judge: Judge = (
            EndpointJudge(settings) if settings.kind == JudgeKind.ENDPOINT else JUDGES.get(settings.kind).open(settings)
        )
        try:
            judge.check()
        except BaseException:
            judge.close()
            raise
    except JudgeError as error:
        raise UserError(str(error)) from None
    return judge


def local_judge(
    run: RunSettings, model: ActorCritic, base: Base, version: Callable[[], int], console: Console
) -> Judge:
    """The policy, a critic or the oracle as judge. Raises UserError."""
    settings, chat = run.judge, base.chat
    assert settings is not None
    if settings.kind == JudgeKind.ORACLE:
        return OracleJudge(settings.noise)
    if settings.kind == JudgeKind.CRITIC:
        return _critic(settings, run.train, chat, console)
    length = settings.max_prompt_tokens + settings.reply_tokens
    engine = in_this_process(run.engine_choice, console).open(
        Opening(model.model, base.source, chat.stop_ids, length, settings.concurrent, model.device, version=-1)
    )

    def refresh() -> None:
        engine.load(version(), model.policy_state())

    return PolicyJudge(engine, chat, settings, refresh)


def _critic(settings: JudgeSettings, train: Train, chat: Chat, console: Console) -> Judge:
    assert settings.run is not None
    run, chosen = locate(settings.run, console)
    if not isinstance(run.settings.critic, CriticSettings):
        raise UserError(f"--judge.run {run.folder} trained no critic of states: name a run of selfac, for example")
    base = run.base(console, train.device)
    if base.chat.tokenizer.get_vocab() != chat.tokenizer.get_vocab() or base.chat.prompt("", "") != chat.prompt("", ""):
        raise UserError(f"--judge.run {run.folder} has another tokenizer or chat template than this run")
    model, prompt = actor_of(base, run.settings)
    assert prompt is not None
    model.load(chosen)
    return CriticJudge(model, prompt, run.settings.algorithm.values.discount, train.token_budget)
