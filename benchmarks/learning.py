"""The learning protocol: training on training tasks, success on held-out tasks, in every seed.

    python benchmarks/learning.py --recipe wiki --algos selfac grpo --seeds 0 1 2
    python benchmarks/learning.py --recipe countdown

A recipe is a settings file of `train.py` in `benchmarks/recipes/`; its settings of the critic are left out for an
algorithm without one. Trains once per algorithm and seed and reads the run's own summary: success on 500 test tasks,
sampled and greedy, before and after, with 95 % intervals over tasks.
Beside it stand agents that cannot have learned: a random one, the trained policy that is shown nothing, on the wiki one
that always follows the first link; and the scripted expert. Runs whose folder is there already are read, not repeated.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import torch
import tyro
import yaml
from rich.console import Console
from rich.table import Table

from agent_envs import registry
from algorithms import REGISTRY
from benchmarks.baselines import UNCHANGED, baselines, blanked, success
from benchmarks.held_out import TrainedPolicy
from runners.command_line.plain import dump_json
from runners.evaluation.tasks import pick_tasks
from runners.reporting.hardware import hardware
from runners.run_folder.runs import SavedRun, is_run, read_run
from runners.statistics.intervals import Interval
from runners.training.report import versions

ROOT = Path(__file__).resolve().parent.parent
RECIPES = ROOT / "benchmarks" / "recipes"
BLANKED, EXPERT = "trained, shown nothing", "scripted expert"
GAIN = {"babyai": 0.20, "code": 0.20, "household": 0.20, "research": 0.15, "textworld": 0.20, "textworld-express": 0.20}
"""Lower end of the gain that must be reached, by recipe; of others it is `USUAL_GAIN`."""
USUAL_GAIN = 0.25
FLOOR = {"wiki": 0.80, "wiki-both": 0.80}
"""Success that the lower end must reach, by recipe."""
WIKI_CEILINGS = {"random agent": 0.05, BLANKED: 0.05, "first-link agent": 0.30}
CEILINGS = {
    "wiki": WIKI_CEILINGS,
    "wiki-both": WIKI_CEILINGS,
    "code": {UNCHANGED: 0.0, BLANKED: 0.05},
    "research": {"random agent": 0.05, BLANKED: 0.05, "reads, computes nothing": 0.0, "computes, reads nothing": 0.05},
}
"""Highest success that agents which cannot have learned may reach, by recipe."""


@dataclass(frozen=True)
class Learning:
    """Train over several seeds and compare with agents that cannot have learned."""

    recipe: str = "wiki"
    """Name of a file in benchmarks/recipes/."""
    algos: tuple[str, ...] = ("selfac",)
    """Algorithms to train with."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of the runs."""
    runs: Path = Path("runs/learning")
    """Folder of the run folders, RECIPE-ALGO-SEED."""
    tasks: int = 500
    """Test tasks for the agents that are not trained."""
    out: Path | None = None
    """File for the result; benchmarks/results/learning-RECIPE.json by default."""


AS_RECORDED: Mapping[str, tuple[str, ...]] = {
    "code": ("--selfac.normalize", "std", "--selfac.normalize-over", "minibatch"),
    "research": ("--selfac.normalize", "std"),
}
"""How the committed figures of Self-AC were made, where the defaults have changed since."""
CRITIC = {"value_lr", "replay_steps", "replay_updates"}
"""Settings of a recipe that an algorithm without a critic refuses."""


def settings_file(recipe: str, algo: str, folder: Path) -> Path:
    """The recipe, or a copy beside the run folder without the critic's settings."""
    file = RECIPES / f"{recipe}.yaml"
    values = yaml.safe_load(file.read_text("utf-8"))
    if REGISTRY.get(algo)().needs.replay or not CRITIC & set(values):
        return file
    own = folder.with_name(f"{folder.name}.yaml")
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text(yaml.safe_dump({key: value for key, value in values.items() if key not in CRITIC}), "utf-8")
    return own


def train(recipe: str, algo: str, seed: int, folder: Path) -> dict:
    """The summary of one run, trained first if it is not there."""
    if not (folder / "summary.json").is_file():
        config = str(settings_file(recipe, algo, folder))
        then = ("--selfac.gae-lambda", "1", *AS_RECORDED.get(recipe, ())) if algo == "selfac" else ()
        anew = ["--config", config, "--algo", algo, *then, "--seed", str(seed), "--out", str(folder)]
        flags = ["--resume", str(folder)] if is_run(folder) else anew
        if status := subprocess.run([sys.executable, str(ROOT / "runners" / "train.py"), *flags]).returncode:
            sys.exit(status)
    return json.loads((folder / "summary.json").read_text("utf-8"))


def shown_nothing(run: SavedRun, tasks: int, console: Console) -> Interval:
    """Success of a trained policy that sees nothing of its task."""
    name, config = run.settings.only_env("learning")
    blind = blanked(registry.env_class(name))
    return TrainedPolicy(run.folder, console).play(name, config, tasks, made=lambda: blind(config)).success()


def gain(start: Interval, final: Interval) -> Interval:
    """What was gained, as if the two were measured on different tasks: the interval is wider than that of pairs."""
    mean = final.mean - start.mean
    down = ((final.mean - final.low) ** 2 + (start.high - start.mean) ** 2) ** 0.5
    up = ((final.high - final.mean) ** 2 + (start.mean - start.low) ** 2) ** 0.5
    return Interval(mean, mean - down, mean + up)


def conditions(
    recipe: str, runs: Mapping[tuple[str, int], dict], others: Mapping[str, Interval]
) -> Iterator[tuple[str, bool]]:
    """What must hold, each with whether it does."""
    for (algo, seed), summary in runs.items():
        who = f"{algo}, seed {seed}"
        for mode in ("sampled", "greedy"):
            start, final = (Interval(**summary[when][mode]) for when in ("start", "final"))
            if recipe in FLOOR:
                least = FLOOR[recipe]
                yield f"{who}: final {mode} success {final}: lower end at least {least}", final.low >= least
            result = gain(start, final)
            least = GAIN.get(recipe, USUAL_GAIN)
            yield f"{who}: {mode} gain {result}: lower end at least {least}", result.low >= least
        yield f"{who}: greedy start at most 0.75", summary["start"]["greedy"]["mean"] <= 0.75
    for name, highest in CEILINGS.get(recipe, {}).items():
        yield f"{name}: {others[name]} at most {highest}", others[name].mean <= highest
    yield f"{EXPERT}: {others[EXPERT]} is 1", others[EXPERT].mean == 1.0


def main() -> None:
    settings = tyro.cli(Learning)
    known = sorted(file.stem for file in RECIPES.glob("*.yaml"))
    if settings.recipe not in known:
        sys.exit(f"no recipe {settings.recipe!r}: there are {', '.join(known)}")
    torch.set_num_threads(1)
    console = Console()
    folders = {(a, s): settings.runs / f"{settings.recipe}-{a}-{s}" for a in settings.algos for s in settings.seeds}
    runs = {(a, s): train(settings.recipe, a, s, folder) for (a, s), folder in folders.items()}
    first = read_run(next(iter(folders.values())))
    env = registry.make(*first.settings.only_env("learning"))
    tasks = pick_tasks(env, "test", settings.tasks)
    others = {name: success(env, agent(), tasks) for name, agent in baselines(env).items()}
    others[BLANKED] = shown_nothing(first, settings.tasks, console)
    table = Table(title=f"{settings.recipe}: success on held-out tasks, 95 % intervals over tasks")
    for name in ("", "start sampled", "start greedy", "final sampled", "final greedy", "seconds"):
        table.add_column(name)
    for (algo, seed), summary in runs.items():
        cells = [str(Interval(**summary[when][mode])) for when in ("start", "final") for mode in ("sampled", "greedy")]
        table.add_row(f"{algo}, seed {seed}", *cells, f"{summary['seconds']:.0f}")
    for name, interval in others.items():
        table.add_row(name, "", "", str(interval), "", "")
    console.print(table)
    failed = [line for line, holds in conditions(settings.recipe, runs, others) if not holds]
    for line in failed:
        console.print(f"[bold red]not met:[/] {line}")
    out = settings.out or ROOT / "benchmarks" / "results" / f"learning-{settings.recipe}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    result = {
        "recipe": (RECIPES / f"{settings.recipe}.yaml").read_text("utf-8"),
        "runs": {f"{algo}-{seed}": summary for (algo, seed), summary in runs.items()},
        "others": {name: asdict(interval) for name, interval in others.items()},
        "hardware": str(hardware()),
        "versions": versions(),
    }
    out.write_text(dump_json(result), "utf-8")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
