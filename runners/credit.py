"""Compares the credit that algorithms assign to the same episodes with true progress.

    turnwise credit --model runs/corridor-selfac-0-… --algos selfac grpo gigpo --episodes 500
    turnwise credit --model RUN --runs RUN RUN-OF-PPO …

The episodes are played with the policy that --model began from and with the one it ended with, in an environment whose
oracle tells the chance of success of every state (``TextEnv.oracle``). A run under --runs takes part with its own
algorithm, settings and critic; an algorithm under --algos with the critic of --model. Nothing is trained.
"""

import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
import runners

if __name__ == "__main__":
    runners.check_install()

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from rich.console import Console

from agent_envs import registry
from agent_envs.ranges import check_ranges
from agents.tree.episode import Episode, EpisodeId, Job
from agents.tree.merge import grow
from algorithms import algorithm_class
from algorithms.base import Algorithm
from runners.command_line.errors import UserError, run_program
from runners.command_line.parse import parse
from runners.command_line.plain import dump_json
from runners.crediting.quality import ABOUT, TITLES, WHEN, by_turn, counts, quality, turns_of
from runners.evaluation.measure import has_oracle, pick_tasks
from runners.evaluation.policies import load_policies
from runners.loading.actor import actor_of
from runners.loading.base_model import load_base
from runners.reporting.tables import cell, show_table, write_csv
from runners.run_folder.folder import write_whole
from runners.run_folder.runs import SavedRun, base_of, locate
from runners.training.judging import Judging, judge_settings, judged, local_judge, remote_judge
from runners.training.learner import Credited, Learner
from runners.workers.controller import Controller
from runners.workers.local import LocalWorkers


@dataclass(frozen=True)
class Credit:
    """Compare algorithms' credit with the environment's own knowledge of progress."""

    model: Path = Path()
    """Run folder whose policies play, before and after training."""
    algos: tuple[str, ...] = ()
    """Algorithms to measure with the critic of --model; by default the one it was trained with."""
    runs: tuple[Path, ...] = ()
    """Run folders to measure with their own algorithm, settings and critic."""
    episodes: int = 500
    """Episodes of each policy."""
    group: int = 8
    """Episodes per task, for algorithms that compare them; the others get the same episodes."""
    split: str = "test"
    """Split of the tasks: train, valid or test."""
    seed: int = 0
    """Seed of the sampling."""
    out: Path | None = None
    """Folder for credit.json and credit.csv."""
    slots: int = 128
    """Episodes played at once."""
    device: str = "auto"
    """Device of the model: auto, cpu, cuda, …"""
    threads: int = 1
    """Threads of torch in this process."""

    def __post_init__(self) -> None:
        check_ranges(self, episodes=1, group=1, slots=1, threads=1)
        if self.episodes < self.group:
            raise ValueError(f"episodes ({self.episodes}) must be at least one group of {self.group}")


@dataclass(frozen=True)
class Scorer:
    """Who credits: an algorithm, and the run whose model it asks."""

    name: str
    algorithm: Algorithm[Any]
    run: SavedRun
    checkpoint: Path


def scorers(credit: Credit, algorithms: Mapping[str, Algorithm[Any]], console: Console) -> list[Scorer]:
    """Everyone who takes part. Raises UserError."""
    run, chosen = locate(credit.model, console)
    result = []
    for path in credit.runs:
        other, newest = locate(path, console)
        result.append(Scorer(other.folder.name, other.settings.algorithm, other, newest))
    for name in credit.algos or (() if credit.runs else (run.train.algo,)):
        algorithm = run.settings.algorithm if name == run.train.algo else algorithms[name]
        needs, there = algorithm.needs, run.settings.algorithm.needs
        no_critic = (needs.critic and not there.critic) or (needs.token_critic and not there.token_critic)
        if no_critic or (needs.judge and not there.judge):
            what = "critic" if no_critic else "judge"
            raise UserError(f"{name} needs a {what}, and {credit.model} has none: name a run of {name} with --runs")
        result.append(Scorer(name, algorithm, run, chosen))
    names = [scorer.name for scorer in result]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"{twice[0]} is named twice: rename a run folder, or leave one out")
    for scorer in result:
        if scorer.run.train.env != run.train.env:
            raise UserError(f"{scorer.run.folder} was trained on {scorer.run.train.env}, not on {run.train.env}")
        if scorer.algorithm.sampling.group > 1 and credit.group < 2:
            raise UserError(f"{scorer.name} compares the episodes of a group: set --group to 2 or more")
    return result


def play(credit: Credit, run: SavedRun, console: Console) -> dict[str, list[Episode]]:
    """The episodes of each policy, with what the oracle said of every state. Raises UserError."""
    env = registry.make(run.train.env, run.settings.env)
    tasks = pick_tasks(env, credit.split, credit.episodes // credit.group)
    if not has_oracle(env, credit.split):
        raise UserError(f"the environment {run.train.env} has no oracle to compare with: name another")
    settings = run.settings.play(slots=credit.slots, exact=True, oracle=True)
    policies = load_policies(str(credit.model), settings, console, device=credit.device, dtype=run.train.dtype)
    workers = LocalWorkers(lambda: policies.worker)
    workers.start()
    controller = Controller(workers, credit.slots, settings.faults)
    jobs = [Job(task, sample, credit.seed) for task in tasks for sample in range(credit.group)]
    result = {}
    try:
        for version, name in enumerate(WHEN):
            controller.load(version, policies.adapters[name])
            result[name] = controller.play(jobs, run.train.sampling()).episodes
    finally:
        workers.close()
    return result


def credited(
    scorer: Scorer, episodes: Mapping[str, Sequence[Episode]], device: str, console: Console
) -> dict[str, dict[EpisodeId, Credited]]:
    """What the scorer credits the episodes of each policy with: the untrained ones before it learned, then after."""
    settings, train = scorer.run.settings, scorer.run.train
    base = load_base(base_of(settings, console, device))
    scorer.run.check(base)
    model, prompt = actor_of(base, settings)
    if not scorer.algorithm.needs.critic:
        prompt = ()  # the run's critic is not this algorithm's
    learner = Learner(
        model, scorer.algorithm, prompt, replace(train, replay_steps=0, replay_body=False, replay_updates=4)
    )
    judge_of = judge_settings(settings, scorer.algorithm)
    judge = judge_of and (remote_judge(judge_of) or local_judge(settings, model, base, lambda: 0, console))
    judging = judge and Judging(judge, judged(scorer.algorithm), scorer.run.folder)
    result: dict[str, dict[EpisodeId, Credited]] = {}
    for when in WHEN:
        if when == "trained":
            model.load(scorer.checkpoint)
        if judging:
            judging.label(episodes[when])
        trees = grow(episodes[when], least=min(2, scorer.algorithm.sampling.group))
        sizes = [len(tree.paths) for tree in trees]
        at_once = max(1, round(train.episodes / train.minibatches / max(1, max(sizes, default=1))))
        result[when] = {}
        for i in range(0, len(trees), at_once):
            result[when] |= learner.credit(trees[i : i + at_once])
        if not (scorer.algorithm.needs.critic or scorer.algorithm.needs.token_critic):
            result[when] = {name: replace(one, values=None) for name, one in result[when].items()}
        for action in (action for episode in episodes[when] for action, _ in episode.turns):
            action.label = None  # the next scorer has its own judge
    if judging:
        judging.close()
    return result


def measure(credit: Credit, who: Sequence[Scorer], console: Console) -> dict[str, Any]:
    """{"base": …, "trained": …}, each with counts and, by scorer, every figure with its interval."""
    run, _ = locate(credit.model, console)
    episodes = play(credit, run, console)
    result: dict[str, Any] = {when: {"scorers": {}} for when in WHEN}
    for scorer in who:
        console.print(f"crediting: {scorer.name}", highlight=False)
        credits = credited(scorer, episodes, credit.device, console)
        for when in WHEN:
            turns = turns_of(episodes[when], credits[when])
            result[when]["counts"] = counts(turns)
            result[when]["scorers"][scorer.name] = {
                "algo": scorer.run.train.algo, "figures": quality(turns, seed=credit.seed), "by_turn": by_turn(turns)
            }  # fmt: skip
    return result


def show(result: Mapping[str, Any], console: Console) -> None:
    """What a person reads."""
    for when in WHEN:
        count, of_scorer = result[when]["counts"], result[when]["scorers"]
        title = (
            f"{when} policy: success {count['success']:.3f}; {count['turns']:.0f} turns of {count['episodes']:.0f} "
            f"episodes: {count['progress']:.1%} progress, {count['setbacks']:.1%} setbacks, {count['irrelevant']:.1%} "
            "irrelevant"
        )
        table = [[label, *(cell(one["figures"][key]) for one in of_scorer.values())] for key, label in TITLES.items()]
        show_table(title, ["", *of_scorer], table, console)
    for key, about in ABOUT.items():
        console.print(f"[bold]{TITLES[key]}[/]: {about}", highlight=False, style="dim")


def rows(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row per policy, scorer, figure and turn (empty: all turns)."""
    out: list[dict[str, Any]] = []
    for when in WHEN:
        for name, one in result[when]["scorers"].items():
            who = {"policy": when, "scorer": name, "algo": one["algo"]}
            for key, value in one["figures"].items():
                if value is not None:
                    out.append(who | {"turn": "", "figure": key} | asdict(value))
            for row in one["by_turn"]:
                known = ((key, value) for key, value in row.items() if key != "turn" and value is not None)
                out += [who | {"turn": int(row["turn"]), "figure": key, "mean": value} for key, value in known]
    return out


def write(result: Mapping[str, Any], settings: Any, folder: Path) -> None:
    """credit.json and credit.csv. Raises UserError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_csv(folder / "credit.csv", rows(result))
        write_whole(folder / "credit.json", dump_json({"settings": settings, **result}))
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror}") from None


def main() -> None:
    def parts_of(credit: Credit) -> dict[str, type]:
        return {name: algorithm_class(name) for name in credit.algos}

    credit, algorithms = parse(Credit, parts_of, about=Credit.__doc__ or "")
    torch.set_num_threads(credit.threads)
    console = Console()
    who = scorers(credit, algorithms, console)
    result = measure(credit, who, console)
    show(result, console)
    if credit.out:
        write(result, credit, credit.out)


if __name__ == "__main__":
    run_program(main)
