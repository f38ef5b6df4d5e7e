"""Plays the episodes, lets everyone credit them, and shows and writes how that compares with true progress."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from agent_envs import registry
from agents.tree.episode import Episode, EpisodeId, Job
from agents.tree.merge import grow
from algorithms.base import Algorithm, Needs
from runners.command_line.errors import UserError
from runners.command_line.outputs import writing
from runners.command_line.plain import dump_json
from runners.crediting.page import PAGE, CreditedEpisodes, write_episodes
from runners.crediting.played_values import PlayedValues, mean_error, played_values
from runners.crediting.quality import (
    ABOUT,
    ABOUT_PLAYED,
    TITLES,
    WHEN,
    by_turn,
    counts,
    credited_turns,
    quality,
)
from runners.crediting.settings import Credit
from runners.evaluation.policies import load_policies
from runners.evaluation.tasks import has_oracle, pick_tasks
from runners.loading.base_model import actor_of
from runners.reporting.progress import evaluating
from runners.reporting.tables import cell, show_table, write_csv
from runners.run_folder.checkpoint import update_of
from runners.run_folder.folder import write_whole
from runners.run_folder.runs import SavedRun, locate
from runners.settings.judge import judge_settings
from runners.training.continuations import Continuations
from runners.training.credited import Credited
from runners.training.judging import Judging, local_judge, remote_judge
from runners.training.learner import Learner


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
            raise UserError(f"{scorer.run.folder} was trained on {scorer.run.train.envs}, not on {run.train.envs}")
        if scorer.algorithm.sampling.group > 1 and credit.group < 2:
            raise UserError(f"{scorer.name} compares the episodes of a group: set --group to 2 or more")
    return result


def continuing(who: Sequence[Scorer]) -> Needs | None:
    """What those need who credit by continuations; None where nobody does. Raises UserError."""
    asked = {(needs.continuations, needs.discount): needs for needs in (scorer.algorithm.needs for scorer in who)}
    asked = {sizes: needs for sizes, needs in asked.items() if needs.continuations}
    if len(asked) > 1:
        raise UserError("those who play on from states must agree on continuations and discount: leave one out")
    return next(iter(asked.values()), None)


@dataclass(frozen=True)
class Played:
    """The episodes of one policy, and their true values where these were played too."""

    episodes: list[Episode]
    values: dict[EpisodeId, PlayedValues] | None
    error: float | None
    """Mean standard error of the played values."""


def play(credit: Credit, run: SavedRun, who: Sequence[Scorer], console: Console) -> dict[str, Played]:
    """What each policy played. The oracle or continuations valued every state, and others those that somebody credits
    by. Raises UserError."""
    needs = continuing(who)
    env = registry.make(*run.settings.only_env("credit"))
    tasks = pick_tasks(env, credit.split, credit.episodes // credit.group, console)
    oracle = has_oracle(env, credit.split)
    if not oracle and not credit.continuations:
        raise UserError(
            f"the environment {env.name} has no oracle to compare with: compare with --continuations 16, the policy's "
            "own values"
        )
    settings = run.settings.play(slots=credit.slots, exact=True, oracle=oracle)
    policies = load_policies(str(credit.model), settings, console, device=credit.device, dtype=run.train.dtype)
    jobs = [Job(task, sample, credit.seed) for task in tasks for sample in range(credit.group)]
    sampling, retries = run.train.sampling(), run.settings.faults.retries
    result = {}
    with policies.playing() as controller:
        for version, name in enumerate(WHEN):
            controller.load(version, policies.adapters[name])
            with evaluating(console, len(jobs), doing=f"playing, {name} policy") as advance:
                episodes = controller.play(jobs, sampling, on_end=advance).episodes
            trees = grow(episodes)
            if needs is not None:
                Continuations(controller, sampling, needs, retries, console).play(trees)
            if not credit.continuations:
                result[name] = Played(episodes, None, None)
                continue
            console.print(f"playing on from every state: {name} policy", highlight=False)
            # Other seeds than those of an algorithm that credits by continuations: it must not know the truth.
            played_on = Needs(continuations=credit.continuations)
            truth = Continuations(controller, sampling, played_on, retries + 1, console)
            continued = truth.estimate(trees)
            result[name] = Played(episodes, played_values(trees, continued.estimates), continued.error)
    return result


def credited(
    scorer: Scorer, played: Mapping[str, Played], device: str, console: Console
) -> dict[str, dict[EpisodeId, Credited]]:
    """What the scorer credits the episodes of each policy with: the untrained ones before it learned, then after."""
    settings, train = scorer.run.settings, scorer.run.train
    base = scorer.run.base(console, device)
    model, prompt = actor_of(base, settings)
    if not scorer.algorithm.needs.critic:
        prompt = ()  # the run's critic is not this algorithm's
    learner = Learner(
        model, scorer.algorithm, prompt, replace(train, replay_steps=0, replay_body=False, replay_updates=4)
    )
    judge_of = judge_settings(settings, scorer.algorithm)
    judge = judge_of and (remote_judge(judge_of) or local_judge(settings, model, base, lambda: 0, console))
    judging = judge and Judging(judge, scorer.algorithm, scorer.run.folder)
    result: dict[str, dict[EpisodeId, Credited]] = {}
    for when in WHEN:
        if when == "trained":
            model.load(scorer.checkpoint)
        if judging:
            judging.label(played[when].episodes)
        trees = grow(played[when].episodes, least=min(2, scorer.algorithm.sampling.group))
        sizes = [len(tree.paths) for tree in trees]
        at_once = max(1, round(train.episodes / train.minibatches / max(1, max(sizes, default=1))))
        result[when] = {}
        for i in range(0, len(trees), at_once):
            result[when] |= learner.credit(trees[i : i + at_once])
        needs = scorer.algorithm.needs
        if not (needs.critic or needs.token_critic or needs.continuations):
            result[when] = {name: replace(one, values=None) for name, one in result[when].items()}
        for action in (action for episode in played[when].episodes for action, _ in episode.turns):
            action.label = None  # the next scorer has its own judge
    if judging:
        judging.close()
    return result


@dataclass(frozen=True)
class Measured:
    """What was played, what everyone made of it, and how good that is."""

    played: Mapping[str, Played]
    """By policy."""
    credits: Mapping[str, Mapping[str, Mapping[EpisodeId, Credited]]]
    """By policy and scorer."""
    figures: Mapping[str, Any]
    """{"base": …, "trained": …}, each with counts and, by scorer, every figure with its interval."""


def measure(credit: Credit, who: Sequence[Scorer], console: Console) -> Measured:
    """Plays, credits and compares. Raises UserError."""
    run, _ = locate(credit.model, console)
    played = play(credit, run, who, console)
    credits: dict[str, dict[str, Mapping[EpisodeId, Credited]]] = {when: {} for when in WHEN}
    figures: dict[str, Any] = {when: {"error": played[when].error, "scorers": {}} for when in WHEN}
    for scorer in who:
        console.print(f"crediting: {scorer.name}", highlight=False)
        for when, mine in credited(scorer, played, credit.device, console).items():
            credits[when][scorer.name] = mine
            turns = credited_turns(played[when].episodes, mine, played[when].values)
            figures[when]["counts"] = counts(turns)
            figures[when]["scorers"][scorer.name] = {
                "algo": scorer.run.train.algo, "figures": quality(turns, seed=credit.seed), "by_turn": by_turn(turns)
            }  # fmt: skip
    return Measured(played, credits, figures)


def show(result: Mapping[str, Any], console: Console, continuations: int = 0) -> None:
    """What a person reads; the truth was this many ``continuations`` from every state, or 0: the oracle's."""
    for when in WHEN:
        count, of_scorer = result[when]["counts"], result[when]["scorers"]
        title = (
            f"{when} policy: success {count['success']:.3f}; {count['turns']:.0f} turns of {count['episodes']:.0f} "
            f"episodes: {count['progress']:.1%} progress, {count['setbacks']:.1%} setbacks, {count['irrelevant']:.1%} "
            "irrelevant"
        )
        table = [[label, *(cell(one["figures"][key]) for one in of_scorer.values())] for key, label in TITLES.items()]
        show_table(title, ["", *of_scorer], table, console)
    if continuations:
        errors = mean_error({when: result[when]["error"] for when in WHEN})
        console.print(
            f"truth: the mean return of {continuations} episodes that the policy plays on from a state (mean standard "
            f"error: {errors}); a change is sure beyond two standard errors",
            highlight=False,
        )
    for key, about in (ABOUT_PLAYED if continuations else ABOUT).items():
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


def write(measured: Measured, credit: Credit, folder: Path, console: Console) -> None:
    """credit.json, credit.csv, and the episodes as credit.jsonl and credit.html. Raises UserError."""
    run, newest = locate(credit.model, console)
    updates = dict(zip(WHEN, (0, update_of(newest)), strict=True))
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_csv(folder / "credit.csv", rows(measured.figures))
        write_whole(folder / "credit.json", dump_json({"settings": credit, **measured.figures}))
        write_episodes(
            [
                CreditedEpisodes(updates[when], played.episodes, played.values, measured.credits[when])
                for when, played in measured.played.items()
            ],
            credit,
            run.base(console, credit.device).source,
            folder,
        )
    console.print(f"{folder / PAGE}: the episodes, turn by turn, with their true values", highlight=False)


def run(credit: Credit, algorithms: Mapping[str, Algorithm[Any]]) -> None:
    """The whole program. Raises UserError."""
    console = Console()
    who = scorers(credit, algorithms, console)
    measured = measure(credit, who, console)
    show(measured.figures, console, credit.continuations)
    if credit.out:
        write(measured, credit, credit.out, console)
