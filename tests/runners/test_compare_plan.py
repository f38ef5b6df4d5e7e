"""The plan of a comparison: who gets which settings, and one line for every mistake before anything runs."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from run_cases import training

from agent_envs.core import TextEnv
from agent_envs.identity.env import IdentityEnv
from runners.command_line.errors import UserError
from runners.command_line.plain import plain
from runners.comparison.comparison_settings import ComparisonPlan, read_plan
from runners.comparison.entrants import flag_name, merged, split_flags
from runners.comparison.runs import check, train_command

SILENT = Console(file=io.StringIO())
SMALL: dict[str, Any] = {"env": "identity", "seeds": 2, "env_steps": 100, "test_tasks": 8}
TWO = ("--algos", "selfac", "grpo")


def plan(tmp_path: Path, *argv: str, **values: Any) -> ComparisonPlan:
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump(SMALL | values, allow_unicode=True))
    found = read_plan(["--config", str(file), "--out", str(tmp_path / "out"), *argv])
    found.check(SILENT)
    return found


def test_flags_and_their_values() -> None:
    argv = ["--lr", "1e-3", "--algos", "a", "b", "--no-exact", "--grpo.max-x=-1", "--react.n", "-3"]
    flags = split_flags(argv)
    assert flags == [
        ("--lr", "1e-3"),
        ("--algos", "a", "b"),
        ("--no-exact",),
        ("--grpo.max-x=-1",),
        ("--react.n", "-3"),
    ]
    assert [flag_name(flag) for flag in flags] == ["lr", "algos", "no_exact", "grpo.max_x", "react.n"]
    with pytest.raises(UserError, match="unexpected 'wiki'"):
        split_flags(["wiki"])
    assert merged({"a": {"x": 1, "y": 2}, "b": 1}, {"a": {"y": 3}, "c": 4}) == {"a": {"x": 1, "y": 3}, "b": 1, "c": 4}


def test_the_processor_clock_sees_one_process(tmp_path: Path) -> None:
    assert plan(tmp_path, *TWO, clock="processor").compare.clock == "processor"
    with pytest.raises(UserError, match="--clock processor does not see rollout workers"):
        plan(tmp_path, *TWO, "--clock", "processor", "--workers", "1")


def test_settings_reach_those_who_have_them(tmp_path: Path) -> None:
    argv = ("--lr", "1e-4", "--grpo.clip-low", "0.1", "--critic.detach-body", "--no-exact")
    entrants = {"plain": {"algo": "grpo", "grpo": {"group": 4}, "lr": 5e-3, "minibatches": 2}}
    found = plan(
        tmp_path, *TWO, *argv, entrants=entrants, identity={"length": 4}, selfac={"gae_lambda": 0.5}, minibatches=3
    )
    selfac, grpo, mine = found.entrants(SILENT).values()
    assert (selfac.train.algo, grpo.train.algo, mine.train.algo) == ("selfac", "grpo", "grpo")
    parts = selfac.settings.by_prefix()
    assert parts["selfac"].gae_lambda == 0.5 and parts["critic"].detach_body
    assert not {"critic", "selfac"} & grpo.settings.by_prefix().keys()
    others = [entrant.settings.algorithm for entrant in (grpo, mine)]
    assert [(a.group, a.clip_low) for a in others] == [(8, 0.1), (4, 0.1)]
    assert [e.train.lr for e in (selfac, grpo, mine)] == [1e-4] * 3, "the command line is above an entrant's own"
    assert [e.train.minibatches for e in (selfac, grpo, mine)] == [3, 3, 2], "an entrant's own is above what is for all"
    for entrant in (selfac, grpo, mine):
        assert entrant.settings.env["identity"].length == 4 and not entrant.train.exact
        assert (entrant.train.env_steps, entrant.train.test_tasks) == (100, 0)
    assert found.baseline == "selfac" and plan(tmp_path, *TWO, "--baseline", "grpo").baseline == "grpo"
    run = mine.run(tmp_path, 7)
    assert (run.name, run.train.seed, run.train.out) == ("plain-7", 7, tmp_path / "plain-7")


@pytest.mark.runs
def test_the_tuning_plays_with_a_seed_of_its_own(tmp_path: Path) -> None:
    tries = [{"lr": lr} for lr in (1e-4, 3e-4, 1e-3, 2e-3, 3e-3, 5e-3)]
    file = tmp_path / "tune.yaml"
    file.write_text(yaml.safe_dump({"all": tries}))
    found = plan(tmp_path, *TWO, "--tune", str(file), "--tune-env-steps", "40")
    tried = found.tried(SILENT)
    assert {name: [[run.train.lr for run in seeds] for seeds in mine] for name, mine in tried.items()} == {
        name: [[one["lr"]] for one in tries] for name in ("selfac", "grpo")
    }
    every = [run for mine in tried.values() for seeds in mine for run in seeds]
    assert {(run.seed, run.train.seed, run.train.env_steps) for run in every} == {(2, 2, 40)}
    (twice, *_), _ = plan(tmp_path, *TWO, "--tune", str(file), "--tune-seeds", "2").tried(SILENT).values()
    assert [(run.name, run.seed) for run in twice] == [("selfac-1-2", 2), ("selfac-1-3", 3)]
    fresh = plan(tmp_path, *TWO, "--tune", str(file), "--first-seed", "100").compare
    assert (list(fresh.run_seeds), list(fresh.tuning_seeds)) == ([100, 101], [102])
    with pytest.raises(UserError, match="setting 2 of selfac was tried before"):
        plan(tmp_path, *TWO, tune={"all": [{"lr": 1e-4} for _ in range(6)]})
    with pytest.raises(UserError, match="tried before"):  # the flag is above what is tried
        plan(tmp_path, *TWO, "--lr", "1e-3", tune={"all": tries})
    with pytest.raises(UserError, match="set eval_every"):
        plan(tmp_path, *TWO, tune={"all": tries}, eval_every=0)


CASES: dict[str, tuple[tuple[str, ...], dict[str, Any], str]] = {
    "unknown algorithm": (("--algos", "selfac", "grpoo"), {}, "unknown algorithm 'grpoo'.*did you mean grpo"),
    "unknown environment": (TWO, {"env": "identety"}, "unknown environment 'identety'"),
    "one seed": ((*TWO, "--seeds", "1"), {}, "seeds must be at least 2, not 1"),
    "one entrant": (("--algos", "grpo"), {}, "at least two entrants"),
    "one algorithm twice": (("--algos", "grpo", "grpo"), {}, "grpo is named twice"),
    "unknown flag": ((*TWO, "--lrr", "3"), {}, "unknown flag --lrr: did you mean --lr"),
    "unknown key": (TWO, {"lrr": 3}, "unknown key 'lrr'"),
    "nobody's part": ((*TWO, "--gigpo.group", "4"), {}, "unknown flag --gigpo.group"),
    "a seed of its own": ((*TWO, "--seed", "4"), {}, "seed is the comparison's own"),
    "a budget of its own": (
        TWO,
        {"entrants": {"x": {"algo": "grpo", "env_steps": 9}}},
        "env_steps is the comparison's",
    ),
    "groups that do not fit": ((*TWO, "--episodes", "12"), {}, "entrant grpo: --episodes 12 must be a multiple"),
    "no algorithm": (TWO, {"entrants": {"x": {"lr": 1e-3}}}, "entrant x: needs its settings, `algo` at least"),
    "a name with a slash": (TWO, {"entrants": {"../x": {"algo": "grpo"}}}, "entrant ../x: names must"),
    "unknown baseline": ((*TWO, "--baseline", "x"), {}, "no entrant 'x' to be the baseline"),
    "too few tries": (TWO, {"tune": {"all": [{"lr": 1e-3}]}}, "at least 6; here: selfac 1, grpo 1"),
    "unequal tries": (TWO, {"tune": {"grpo": [{"lr": i} for i in range(6)]}}, "here: selfac 0, grpo 6"),
    "a judge that is missing": (("--algos", "grpo", "adca"), {}, "entrant adca: --algo adca needs a judge"),
    "other tasks": (
        TWO,
        {"entrants": {"x": {"algo": "grpo", "identity": {"length": 4}}}},
        "x has other settings of ident",
    ),
    "wrong claim": (TWO, {"claims": [{"measure": "auc"}]}, "claim 1"),
    "wrong setting": (TWO, {"entrants": {"x": {"algo": "grpo", "grpo": {"group": 1}}}}, "entrant x: grpo: "),
}


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_told_in_one_line_before_anything_runs(tmp_path: Path, case: str) -> None:
    argv, values, said = CASES[case]
    with pytest.raises(UserError, match=said) as error:
        plan(tmp_path, *argv, **values)
    assert "\n" not in str(error.value) and not (tmp_path / "out").exists()


def test_an_oracle_is_asked_for_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="at least one group"):
        plan(tmp_path, *TWO, "--credit-episodes", "4")
    plan(tmp_path, "--algos", "grpo", "exact_critic", "--credit-episodes", "8")
    monkeypatch.setattr(IdentityEnv, "oracle", TextEnv.oracle)  # as in an environment that cannot tell
    plan(tmp_path, *TWO)
    with pytest.raises(UserError, match="--credit-episodes needs an environment with an oracle, and identity has none"):
        plan(tmp_path, *TWO, "--credit-episodes", "8")
    with pytest.raises(UserError, match="entrant exact_critic needs an environment with an oracle"):
        plan(tmp_path, "--algos", "grpo", "exact_critic")


@pytest.mark.runs
@pytest.mark.usefixtures("own_cache")
def test_a_run_with_other_settings_is_left_alone(tmp_path: Path) -> None:
    run = plan(tmp_path, *TWO).entrants(SILENT)["grpo"].run(tmp_path / "runs", 0)
    with training(run.folder, "--algo", "grpo", "--test-tasks", "0") as begun:
        begun.save()
    with pytest.raises(UserError, match=r"was run with other settings .* .* -> .*: name another folder"):
        check(run)
    same = replace(run, settings=begun.settings)
    check(same)
    assert (train_command(same) or [])[-2:] == ["--resume", str(run.folder)]
    (run.folder / "summary.json").write_text("{}")
    assert train_command(same) is None
    other = replace(same, settings=replace(same.settings, algorithm=replace(same.settings.algorithm, clip_low=0.11)))
    with pytest.raises(UserError, match=r"grpo.clip_low 0.2 -> 0.11"):
        train_command(other)


@pytest.mark.usefixtures("own_cache")
def test_a_run_that_learned_nothing_yet_begins_anew(tmp_path: Path) -> None:
    run = plan(tmp_path, *TWO).entrants(SILENT)["grpo"].run(tmp_path / "runs", 0)
    run.folder.mkdir(parents=True)
    (run.folder / "config.yaml").write_text("half")
    # Of a run that was in this place before, and of another one, which stays.
    measured = [tmp_path / "runs" / f"{name}.test.json" for name in ("grpo-0", "start", "grpo-1")]
    measured.append(tmp_path / "credit" / "0" / "credit.json")
    for file in measured:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    command = train_command(run)
    assert [file.exists() for file in measured] == [False, False, True, False]
    assert command is not None and command[-2] == "--config" and not any(run.folder.iterdir())
    written = yaml.safe_load(Path(command[-1]).read_text())
    assert written["seed"] == 0 and written["grpo"] == plain(run.settings.algorithm)


def test_more_test_tasks_than_there_are_is_all_of_them(tmp_path: Path) -> None:
    said = io.StringIO()
    found = plan(tmp_path, *TWO, "--test-tasks", "500")
    found.check(Console(file=said, width=200))
    assert "43" in said.getvalue()
