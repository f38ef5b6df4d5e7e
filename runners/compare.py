"""Compares algorithms: the same tasks, the same number of environment steps, the same seeds; one report.

    python runners/compare.py --env wiki --algos selfac grpo --seeds 5 --env-steps 50000
    python runners/compare.py --config study.yaml --jobs 2

Every flag that is not one of these belongs to ``train.py`` and goes to all runs; the settings of one algorithm
(``--grpo.group 16``) go to those that have it. Several entrants of one algorithm, tuning and claims stand in a settings
file: see docs/compare.md. The same command goes on where it was stopped.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
import runners

if __name__ == "__main__":
    runners.check_install()

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import Any

from rich.console import Console

from agent_envs import registry
from runners.comparison.claims import Claim, read_claims
from runners.comparison.measures import measured
from runners.comparison.plan import (
    Entrant,
    PlannedRun,
    Values,
    flag_name,
    merged,
    named_entrants,
    read_file,
    resolve,
    split_flags,
)
from runners.comparison.processes import Job, carry_out
from runners.comparison.report import write_report
from runners.comparison.runs import Measured, check, credit_steps, is_measured, job_of
from runners.comparison.tuning import Tried, candidates, judge
from runners.config import UserError, parse, run_program
from runners.folder import hold
from runners.measure import pick_tasks
from runners.runs import base_of

SECTIONS = ("entrants", "tune", "claims")
"""What only a settings file can tell."""


@dataclass(frozen=True)
class Compare:
    """Compare algorithms on the same tasks, environment steps and seeds."""

    env: str = "wiki"
    """Environment to learn; its settings are the flags --ENV.…"""
    algos: tuple[str, ...] = ()
    """Algorithms, each with its default settings; other entrants stand in the settings file."""
    seeds: int = 5
    """Runs of each entrant, with the seeds 0, 1, …"""
    env_steps: int = 50_000
    """Environment steps of each run."""
    jobs: int = 1
    """Runs at once, each in a process of its own."""
    out: Path | None = None
    """Folder of the runs and of the report; by default runs/compare-ENV."""
    baseline: str = ""
    """Entrant that the others are compared with; by default the first one."""
    test_tasks: int = 500
    """Test tasks that every last policy plays, once sampled and once greedily."""
    pass_samples: int = 0
    """Episodes of each of `pass_tasks` test tasks, for pass@k; 0 for none."""
    pass_tasks: int = 100
    """Test tasks for pass@k."""
    credit_episodes: int = 0
    """Episodes with which each seed's entrants are asked whom they credit (runners/credit.py); 0 for none."""
    credit_group: int = 8
    """Episodes of one task among them."""
    tune_env_steps: int = 0
    """Environment steps of each run of the tuning; 0 for as many as the others have."""

    def __post_init__(self) -> None:
        if self.seeds < 2:
            raise ValueError(f"seeds must be at least 2, not {self.seeds}: a single run tells nothing about the spread")
        for name in ("env_steps", "jobs", "test_tasks", "pass_tasks", "credit_group"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        for name in ("pass_samples", "credit_episodes", "tune_env_steps"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative")

    @property
    def folder(self) -> Path:
        return self.out or Path("runs") / f"compare-{self.env}"

    @property
    def measured(self) -> Measured:
        return Measured(self.test_tasks, self.pass_samples, self.pass_tasks)

    @property
    def tuning_steps(self) -> int:
        return self.tune_env_steps or self.env_steps


@dataclass(frozen=True)
class Plan:
    """A comparison that was read and found to be right."""

    compare: Compare
    common: Values
    """Train settings for everyone."""
    own: Mapping[str, Values]
    """Each entrant's own settings."""
    flags: Sequence[tuple[str, ...]]
    """Train flags of the command line."""
    tune: Mapping[str, Sequence[Values]]
    """Settings to try, by entrant; empty without tuning."""
    claims: Sequence[Claim]

    @property
    def baseline(self) -> str:
        return self.compare.baseline or next(iter(self.own))

    def entrants(self, console: Console, chosen: Sequence[Tried] = ()) -> dict[str, Entrant]:
        """Everyone with all settings, those that the tuning chose among them. Raises UserError."""
        own = dict(self.own)
        for tried in chosen:
            if tried.chosen:
                own[tried.entrant] = merged(own[tried.entrant], tried.settings)
        return self._resolved(own, self.compare.env_steps, console)

    def check(self, console: Console) -> None:
        """Raises UserError for what would go wrong later."""
        self.tried(console)
        entrants = list(self.entrants(console).values())
        env = registry.make(self.compare.env, entrants[0].parts[self.compare.env])
        pick_tasks(
            env, "test", max(self.compare.test_tasks, self.compare.pass_tasks if self.compare.pass_samples else 1)
        )
        if self.compare.credit_episodes:
            env.reset(seed=0, options={"split": "test"})
            if env.oracle() is None:
                raise UserError(
                    f"--credit-episodes needs an environment with an oracle, and {self.compare.env} has none"
                )
            if self.compare.credit_episodes < self.compare.credit_group:
                raise UserError("--credit-episodes must be at least one group (--credit-group)")

    def tried(self, console: Console) -> dict[str, list[PlannedRun]]:
        """The runs of the tuning, by entrant. Raises UserError."""
        found: dict[str, list[PlannedRun]] = {name: [] for name in self.tune}
        parent = self.compare.folder / "tuning"
        for i in range(max(map(len, self.tune.values()), default=0)):
            own = {name: merged(self.own[name], tries[i]) for name, tries in self.tune.items()}
            for name, entrant in self._resolved(own, self.compare.tuning_steps, console).items():
                if not entrant.train.eval_every:
                    raise UserError(f"entrant {name}: tuning needs evaluations on validation tasks: set eval_every")
                run = replace(entrant, name=f"{name}-{i + 1}").run(parent, self.compare.seeds)
                if any((run.train.lr, run.parts) == (r.train.lr, r.parts) and _same(run, r) for r in found[name]):
                    raise UserError(f"tune: setting {i + 1} of {name} is one that was tried before")
                found[name].append(run)
        return found

    def _resolved(self, own: Mapping[str, Values], env_steps: int, console: Console) -> dict[str, Entrant]:
        given = {"env": self.compare.env, "env_steps": env_steps, "test_tasks": 0}
        return resolve(self.common, own, self.flags, given, console)


def _same(one: PlannedRun, other: PlannedRun) -> bool:
    return replace(one.train, out=None) == replace(other.train, out=None) and one.parts == other.parts


def read_plan(argv: Sequence[str]) -> Plan:
    """What the command line and its settings file ask for. Raises UserError."""
    ours = {field.name for field in fields(Compare)}
    flags = split_flags(argv)
    named = [flag for flag in flags if flag_name(flag) in ("config", "tune")]
    files = {flag_name(flag): Path(" ".join(flag).partition(" " if len(flag) > 1 else "=")[2]) for flag in named}
    values = read_file(files["config"]) if "config" in files else {}
    if "tune" in files:
        values["tune"] = read_file(files["tune"])
    mine = [flag for flag in flags if flag_name(flag) in {*ours, "h", "help"} or flag[0] == "-h"]
    told = [_flag(key, value) for key, value in values.items() if key in ours]
    compare, _ = parse(Compare, lambda _: {}, [word for flag in (*told, *mine) for word in flag], about=ABOUT)
    sections = {key: values.get(key) for key in SECTIONS}
    algos = compare.algos or (() if sections["entrants"] else ("selfac", "grpo"))
    own = named_entrants(algos, sections["entrants"])
    if compare.baseline and compare.baseline not in own:
        raise UserError(f"there is no entrant {compare.baseline!r} to be the baseline; there are {', '.join(own)}")
    return Plan(
        compare,
        {key: value for key, value in values.items() if key not in ours and key not in SECTIONS},
        own,
        [flag for flag in flags if flag not in mine and flag not in named],
        candidates(sections["tune"], list(own)) if sections["tune"] else {},
        read_claims(sections["claims"], list(own), measured(compare.pass_samples)),
    )


ABOUT = (
    f"{Compare.__doc__} --config FILE reads settings, entrants, tuning and claims from YAML, --tune FILE the settings "
    "to try. Every other flag is one of train.py and goes to all runs."
)


def _flag(key: str, value: Any) -> tuple[str, ...]:
    return (f"--{key.replace('_', '-')}", *map(str, value if isinstance(value, list) else [value]))


def make_models(runs: Sequence[PlannedRun], console: Console) -> None:
    """Makes the tiny models that the runs begin from, so that no two of them make the same one at once."""
    seen: list[Any] = []
    for run in runs:
        key = (run.train.model, run.train.init_from, run.parts.get("pretrain"), run.parts[run.train.env])
        if key not in seen:
            seen.append(key)
            base_of(run.train, run.parts, console, "cpu")


def do(jobs: Sequence[Job], plan: Plan, title: str, console: Console) -> None:
    """Carries out the jobs. Raises UserError when one of them failed."""
    failed = carry_out(jobs, plan.compare.jobs, title, console)
    if failed:
        name, why = next(iter(failed.items()))
        raise UserError(
            f"{len(failed)} of {len(jobs)} runs failed, {name} so: {why}; the same command goes on from here"
        )


def tune(plan: Plan, console: Console) -> list[Tried]:
    """Plays the tuning and chooses. Raises UserError."""
    tried = plan.tried(console)
    runs = [run for mine in tried.values() for run in mine]
    for run in runs:
        check(run)
    plan.entrants(console)
    make_models(runs[:1], console)
    logs = plan.compare.folder / "logs"
    do([job_of(run, logs, None) for run in runs], plan, "tuning", console)
    folders = {name: [run.folder for run in mine] for name, mine in tried.items()}
    return judge(plan.tune, folders, plan.compare.tuning_steps)


def credit(plan: Plan, runs: Sequence[PlannedRun], console: Console) -> None:
    """Asks the entrants of each seed whom they credit. Raises UserError."""
    folder, asked = plan.compare.folder / "credit", (plan.compare.credit_episodes, plan.compare.credit_group)
    jobs = []
    for seed in range(plan.compare.seeds):
        mine = [run for run in runs if run.seed == seed]
        player = next(run for run in mine if run.entrant == plan.baseline)
        steps = partial(credit_steps, mine, player, folder / str(seed), *asked)
        jobs.append(Job(f"credit, seed {seed}", plan.compare.folder / "logs" / f"credit-{seed}.log", steps))
    do(jobs, plan, "crediting", console)


def compare(plan: Plan, console: Console) -> None:
    """Everything, in its order. Raises UserError."""
    folder, logs = plan.compare.folder, plan.compare.folder / "logs"
    tried = tune(plan, console) if plan.tune else []
    entrants = plan.entrants(console, tried)
    # Seed by seed, so that a comparison that was stopped has pairs.
    runs = [entrant.run(folder / "runs", seed) for seed in range(plan.compare.seeds) for entrant in entrants.values()]
    for run in runs:
        check(run)
    make_models(runs[: len(entrants)], console)
    do([job_of(run, logs, plan.compare.measured) for run in runs], plan, "training", console)
    start = folder / "runs" / "start.test.json"
    if not is_measured(start, plan.compare.measured):
        command = plan.compare.measured.command(runs[0].folder, start, "base")
        do([Job("the start", logs / "start.log", lambda: iter([command]))], plan, "measuring", console)
    if plan.compare.credit_episodes:
        credit(plan, runs, console)
    settings = {"compare": asdict(plan.compare), "common": plan.common, "entrants": plan.own}
    page = write_report(folder, plan.baseline, runs, plan.compare.env_steps, tried, plan.claims, settings)
    console.print(f"report: {page}", soft_wrap=True, highlight=False)


def main() -> None:
    plan, console = read_plan(sys.argv[1:]), Console()
    plan.check(console)
    try:
        plan.compare.folder.mkdir(parents=True, exist_ok=True)
        lock = hold(plan.compare.folder)
    except OSError as error:
        raise UserError(f"cannot write {plan.compare.folder}: {error.strerror}; name another with --out") from None
    with lock:
        compare(plan, console)


if __name__ == "__main__":
    run_program(main)
