"""The learning protocol: does training work, on tasks nobody trained on, in every seed?

    python benchmarks/learning.py --algos selfac grpo --seeds 0 1 2 --out benchmarks/results/learning.json

Trains once per algorithm and seed with the default settings and reads the run's own summary: success on 500 test tasks,
sampled and greedy, before and after, with 95 % intervals over tasks. Beside it stand agents that cannot have learned: a
random one, one that always follows the first link, the trained policy with blanked observations; and the scripted
expert. Runs whose folder is there already are read, not repeated.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.table import Table

from agent_envs.hosts import HostSettings
from agent_envs.wiki.baselines import Agent, FirstLinkAgent, RandomAgent, play
from agent_envs.wiki.config import WikiConfig
from agent_envs.wiki.env import WikiEnv
from agents.react import Job, ReActSettings
from agents.rollout import FaultSettings, rollout
from runners.config import dump_json
from runners.evaluate import Evaluate, policies_of
from runners.intervals import Interval, bootstrap
from runners.measure import Result, pick_tasks
from runners.report import versions

ROOT = Path(__file__).resolve().parent.parent
RANDOM, FIRST_LINK, BLANKED = "random agent", "first-link agent", "trained, observations blanked"
EXPERT = "scripted expert"
CEILINGS = {RANDOM: 0.05, BLANKED: 0.05, FIRST_LINK: 0.30}
"""Highest success that agents which cannot have learned may reach."""


@dataclass(frozen=True)
class Learning:
    """Train over several seeds and compare with agents that cannot have learned."""

    algos: tuple[str, ...] = ("selfac", "grpo")
    """Algorithms to train with."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of the runs."""
    runs: Path = Path("runs/learning")
    """Folder of the run folders, ALGO-SEED."""
    tasks: int = 500
    """Test tasks for the agents that are not trained."""
    out: Path = Path("benchmarks/results/learning.json")
    """File for the result."""


class BlankedWiki(WikiEnv):
    """The wiki with every observation taken away: what is left is guessing."""

    def step(self, action: str) -> tuple[str, float, bool, bool, dict]:
        _, reward, terminated, truncated, info = super().step(action)
        return "", reward, terminated, truncated, info


class Expert:
    """The scripted expert as an agent."""

    def __init__(self, env: WikiEnv) -> None:
        self.env = env

    def begin(self, task: object) -> None:
        pass

    def act(self, observation: str) -> str:
        return self.env.expert()


def train(algo: str, seed: int, folder: Path) -> dict:
    """The summary of one run, trained first if it is not there."""
    if not (folder / "summary.json").is_file():
        command = [sys.executable, str(ROOT / "runners" / "train.py"), "--env", "wiki", "--algo", algo]
        subprocess.run([*command, "--seed", str(seed), "--out", str(folder)], check=True)
    return json.loads((folder / "summary.json").read_text("utf-8"))


def scripted(make: Callable[[WikiEnv], Agent], tasks: int) -> Interval:
    """Success of an agent without a model."""
    env = WikiEnv(WikiConfig())
    agent = make(env)
    return bootstrap([float(play(env, agent, task)[1]) for task in pick_tasks(env, "test", tasks)])


def blanked(run: Path, tasks: int, console: Console) -> Interval:
    """Success of a trained policy that sees nothing but its task."""
    parts = {"wiki": WikiConfig(), "react": ReActSettings(), "envs": HostSettings(), "faults": FaultSettings()}
    policies = policies_of(Evaluate(model=str(run)), WikiEnv(), parts, console)
    worker = policies.worker
    worker.engine.load(1, policies.adapters["trained"])
    jobs = [Job(task) for task in pick_tasks(WikiEnv(), "test", tasks)]
    played = rollout(BlankedWiki, worker.engine, worker.chat, jobs, ReActSettings())
    return Interval(**Result(tuple(played.outcomes), 1).success())


def conditions(runs: Mapping[tuple[str, int], dict], others: Mapping[str, Interval]) -> Iterator[tuple[str, bool]]:
    """What must hold, each with whether it does."""
    for (algo, seed), summary in runs.items():
        who = f"{algo}, seed {seed}"
        for mode in ("sampled", "greedy"):
            start, final = (Interval(**summary[when][mode]) for when in ("start", "final"))
            yield f"{who}: final {mode} success {final}: lower end at least 0.80", final.low >= 0.80
            yield f"{who}: {mode} lower end at least 0.25 above the start ({start})", final.low >= start.mean + 0.25
        yield f"{who}: greedy start at most 0.75", summary["start"]["greedy"]["mean"] <= 0.75
    for name, highest in CEILINGS.items():
        yield f"{name}: {others[name]} at most {highest}", others[name].mean <= highest
    yield f"{EXPERT}: {others[EXPERT]} is 1", others[EXPERT].mean == 1.0


def main() -> None:
    settings = tyro.cli(Learning)
    torch.set_num_threads(1)
    console = Console()
    runs = {(a, s): train(a, s, settings.runs / f"{a}-{s}") for a in settings.algos for s in settings.seeds}
    first = settings.runs / f"{settings.algos[0]}-{settings.seeds[0]}"
    others = {
        RANDOM: scripted(lambda env: RandomAgent(np.random.default_rng(0)), settings.tasks),
        FIRST_LINK: scripted(lambda env: FirstLinkAgent(), settings.tasks),
        BLANKED: blanked(first, settings.tasks, console),
        EXPERT: scripted(Expert, settings.tasks),
    }
    table = Table(title="success on 500 test tasks of unseen worlds, 95 % intervals over tasks")
    for name in ("", "start sampled", "start greedy", "final sampled", "final greedy", "seconds"):
        table.add_column(name)
    for (algo, seed), summary in runs.items():
        cells = [str(Interval(**summary[when][mode])) for when in ("start", "final") for mode in ("sampled", "greedy")]
        table.add_row(f"{algo}, seed {seed}", *cells, f"{summary['seconds']:.0f}")
    for name, interval in others.items():
        table.add_row(name, "", "", str(interval), "", "")
    console.print(table)
    failed = [line for line, holds in conditions(runs, others) if not holds]
    for line in failed:
        console.print(f"[bold red]not met:[/] {line}")
    settings.out.parent.mkdir(parents=True, exist_ok=True)
    result = {
        "runs": {f"{algo}-{seed}": summary for (algo, seed), summary in runs.items()},
        "others": {name: asdict(interval) for name, interval in others.items()},
        "versions": versions(),
    }
    settings.out.write_text(dump_json(result), "utf-8")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
