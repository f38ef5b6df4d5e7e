"""Settings of a comparison, resolved with its settings file into a plan.

Invariant: a `ComparisonPlan` was found to be right as far as that can be known before anything runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from rich.console import Console

from agent_envs import registry
from agent_envs.ranges import check_ranges
from runners.command_line.errors import UserError
from runners.command_line.parse import parse, read_file
from runners.comparison.claims import Claim, read_claims
from runners.comparison.curves import Clock
from runners.comparison.entrants import (
    Entrant,
    PlannedRun,
    Values,
    flag_name,
    merged,
    named_entrants,
    resolve,
    split_flags,
)
from runners.comparison.measures import measured
from runners.comparison.runs import Measured
from runners.comparison.tuning import Tried, candidates
from runners.evaluation.tasks import has_oracle, pick_tasks

SECTIONS = ("entrants", "tune", "claims")
"""What only a settings file can tell."""
CONTINUED = 96
"""Episodes that are played on from every state, where that is asked for."""


@dataclass(frozen=True)
class Compare:
    """Compare algorithms on the same tasks, environment steps and seeds."""

    env: str = "wiki"
    """Environment to learn; its settings are the flags --ENV.…"""
    algos: tuple[str, ...] = ()
    """Algorithms, each with its default settings; the settings file may define other entrants."""
    seeds: int = 5
    """Runs of each entrant, with the seeds `first_seed`, `first_seed` + 1, …"""
    first_seed: int = 0
    """Seed of the first run of each entrant: seeds that no earlier study had are fresh."""
    env_steps: int = 50_000
    """Environment steps of each run."""
    jobs: int = 1
    """Runs in parallel, each in its own process."""
    out: Path | None = None
    """Folder of the runs and of the report; by default runs/compare-ENV."""
    clock: Clock = Clock.WALL
    """What its seconds are: those on the wall, or the processor's, which other programs beside it change less. The
    processor's are those of a run's own process: not of environments or rollout workers in others, nor of a GPU."""
    baseline: str = ""
    """Entrant to compare with; by default the first one."""
    test_tasks: int = 500
    """Test tasks for each final policy, played once sampled and once greedily."""
    pass_samples: int = 0
    """Episodes of each of `pass_tasks` test tasks, for pass@k; 0 for none."""
    pass_tasks: int = 100
    """Test tasks for pass@k."""
    credit_episodes: int = 0
    """Episodes on which the credit of each seed's entrants is measured (turnwise credit); 0 for none."""
    credit_group: int = 8
    """Episodes per task among them."""
    credit_continuations: int = 0
    """Also measure it against the policy's own values, by this many continuations of every state; 0: do not."""
    continued_episodes: int = CONTINUED
    """Episodes on which that is measured; every state of them is played on from."""
    tune_env_steps: int = 0
    """Environment steps of each tuning run; 0: as many as the other runs."""
    tune_seeds: int = 1
    """Runs of each try, with the seeds after those of the compared runs: one alone may have had luck."""

    def __post_init__(self) -> None:
        if self.seeds < 2:
            raise ValueError(f"seeds must be at least 2, not {self.seeds}: a single run shows no spread")
        if self.credit_continuations == 1:
            raise ValueError("credit_continuations must be 2 or more, which have a standard error, or 0")
        if self.continued_episodes != CONTINUED and not self.credit_continuations:
            raise ValueError("continued_episodes only works with credit_continuations")
        check_ranges(self, env_steps=1, jobs=(1, 1024), test_tasks=1, pass_tasks=1, credit_group=1, seeds=(2, 10_000))
        check_ranges(self, first_seed=(0, 2**63 - 1 - 10_000))
        check_ranges(self, pass_samples=0, tune_env_steps=0, tune_seeds=(1, 10_000))
        check_ranges(self, credit_episodes=0, credit_continuations=0, continued_episodes=1)

    @property
    def folder(self) -> Path:
        return self.out or Path("runs") / f"compare-{self.env}"

    @property
    def run_seeds(self) -> range:
        """The seeds of the compared runs."""
        return range(self.first_seed, self.first_seed + self.seeds)

    @property
    def tuning_seeds(self) -> range:
        """The seeds of the tuning's runs, which no compared run has."""
        return range(self.run_seeds.stop, self.run_seeds.stop + self.tune_seeds)

    @property
    def measured(self) -> Measured:
        return Measured(self.test_tasks, self.pass_samples, self.pass_tasks)

    @property
    def truths(self) -> list[dict[str, int]]:
        """What credit is compared with, as flags of ``turnwise credit``: the oracle, the policy's own values."""
        continued = self.continued_episodes if self.credit_continuations else 0
        return [
            {"episodes": episodes, "group": self.credit_group, "continuations": continuations}
            for episodes, continuations in ((self.credit_episodes, 0), (continued, self.credit_continuations))
            if episodes
        ]

    @property
    def tuning_steps(self) -> int:
        return self.tune_env_steps or self.env_steps


@dataclass(frozen=True)
class ComparisonPlan:
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
        entrants, compare = list(self.entrants(console).values()), self.compare
        first = entrants[0].settings.env
        for entrant in entrants:
            if entrant.settings.env != first:
                raise UserError(
                    f"entrant {entrant.name} has other settings of {compare.env}: all must play the same tasks"
                )
        if compare.clock is Clock.PROCESSOR and any(entrant.train.workers != "0" for entrant in entrants):
            raise UserError("--clock processor does not see rollout workers: leave --workers out, or --clock wall")
        env = registry.make(compare.env, first[compare.env])
        pick_tasks(env, "test", max(compare.test_tasks, compare.pass_tasks if compare.pass_samples else 1), console)
        needs = [entrant.name for entrant in entrants if entrant.settings.algorithm.needs.oracle]
        if (compare.credit_episodes or needs) and not has_oracle(env, "test"):
            who = f"entrant {needs[0]}" if needs else "--credit-episodes"
            raise UserError(f"{who} needs an environment with an oracle, and {compare.env} has none")
        for truth in compare.truths:
            if truth["episodes"] < compare.credit_group:
                flag = "--continued-episodes" if truth["continuations"] else "--credit-episodes"
                raise UserError(f"{flag} must be at least one group (--credit-group)")

    def tried(self, console: Console) -> dict[str, list[list[PlannedRun]]]:
        """The runs of the tuning, by entrant, try and seed. Raises UserError."""
        result: dict[str, list[list[PlannedRun]]] = {name: [] for name in self.tune}
        parent = self.compare.folder / "tuning"
        for i in range(max(map(len, self.tune.values()), default=0)):
            own = {name: merged(self.own[name], tries[i]) for name, tries in self.tune.items()}
            for name, entrant in self._resolved(own, self.compare.tuning_steps, console).items():
                if not entrant.train.eval_every:
                    raise UserError(f"entrant {name}: tuning needs evaluations on validation tasks: set eval_every")
                named = replace(entrant, name=f"{name}-{i + 1}")
                runs = [named.run(parent, seed) for seed in self.compare.tuning_seeds]
                if any(_same(runs[0], other[0]) for other in result[name]):
                    raise UserError(f"tune: setting {i + 1} of {name} was tried before")
                result[name].append(runs)
        return result

    def _resolved(self, own: Mapping[str, Values], env_steps: int, console: Console) -> dict[str, Entrant]:
        given = {"env": self.compare.env, "env_steps": env_steps, "test_tasks": 0}
        return resolve(self.common, own, self.flags, given, console)


def _same(one: PlannedRun, other: PlannedRun) -> bool:
    a, b = (replace(run.settings, train=replace(run.train, out=None)) for run in (one, other))
    return a == b


def read_plan(argv: Sequence[str]) -> ComparisonPlan:
    """What the command line and its settings file ask for. Raises UserError."""
    ours = {field.name for field in fields(Compare)}
    flags = split_flags(argv)
    named = [flag for flag in flags if flag_name(flag) in ("config", "tune")]
    if bare := [flag[0] for flag in named if len(flag) == 1 and "=" not in flag[0]]:
        raise UserError(f"{bare[0]} needs the name of a YAML file")
    files = {flag_name(flag): Path(" ".join(flag).partition(" " if len(flag) > 1 else "=")[2]) for flag in named}
    values = read_file(files["config"]) if "config" in files else {}
    if "tune" in files:
        values["tune"] = read_file(files["tune"])
    mine = [flag for flag in flags if flag_name(flag) in {*ours, "h", "help"} or flag[0] == "-h"]
    words = []
    for key in (key for key in values if key in ours):
        several = values[key] if isinstance(values[key], list) else [values[key]]
        words += [f"--{key.replace('_', '-')}", *map(str, several)]
    if any(flag_name(flag) == "env" and len(flag) > 2 for flag in (*split_flags(words), *mine)):
        raise UserError("compare takes one environment: compare on each of them in turn")
    compare, _ = parse(Compare, argv=[*words, *(word for flag in mine for word in flag)], about=ABOUT)
    sections = {key: values.get(key) for key in SECTIONS}
    algos = compare.algos or (() if sections["entrants"] else ("selfac", "grpo"))
    own = named_entrants(algos, sections["entrants"])
    if compare.baseline and compare.baseline not in own:
        raise UserError(f"there is no entrant {compare.baseline!r} to be the baseline; there are {', '.join(own)}")
    return ComparisonPlan(
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
