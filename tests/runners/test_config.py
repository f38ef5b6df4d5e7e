"""Command lines and settings files: what was chosen is shown and checked, and every mistake is one line."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import zip_longest
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import yaml

from runners.command_line.errors import UserError
from runners.command_line.parse import joined, parse
from runners.command_line.plain import dump, dump_json


class Mode(StrEnum):
    FAST = "fast"
    SLOW = "slow"


@dataclass(frozen=True)
class First:
    """What is chosen."""

    env: str = "pond"
    """Environment."""
    out: Path | None = None
    """Folder."""
    rate: float = 0.5
    """A number."""

    def __post_init__(self) -> None:
        if self.rate < 0:
            raise ValueError("rate must not be negative")


@dataclass(frozen=True)
class Inner:
    depth: int = 2
    """Depth."""


@dataclass(frozen=True)
class Pond:
    """A pond."""

    fish: int = 3
    """How many."""
    names: tuple[str, ...] = ("a", "b")
    """Their names."""
    limit: float = math.inf
    """No more than that."""
    mode: Mode = Mode.FAST
    """How fast."""
    maybe: Mode | None = None
    """How fast, perhaps."""
    deep: bool = False
    """Whether it is deep."""
    targets: str | tuple[str, ...] = "all"
    """A word, or several."""
    inner: Inner = field(default_factory=Inner)
    """What lies inside."""

    def __post_init__(self) -> None:
        if self.fish < 0:
            raise ValueError("pond: fish must not be negative")


@dataclass(frozen=True)
class Forest:
    """A forest."""

    trees: int = 100
    """How many."""


def parts(first: First) -> Mapping[str, type]:
    known: dict[str, type] = {"pond": Pond, "forest": Forest}
    if first.env not in known:
        raise ValueError(f"unknown environment {first.env!r}")
    return {first.env: known[first.env]}


def read(*argv: str) -> tuple[First, dict[str, Any]]:
    return parse(First, parts, argv, about="A test.")


def refused(*argv: str) -> str:
    with pytest.raises(UserError) as caught:
        read(*argv)
    text = str(caught.value)
    assert "\n" not in text and text.strip() and "╭" not in text
    return text


def test_defaults_and_flags() -> None:
    assert read() == (First(), {"pond": Pond()})
    first, chosen = read("--rate", "2", "--pond.fish", "7", "--pond.mode", "slow", "--pond.names", "x", "y", "z")
    assert first.rate == 2 and chosen == {"pond": Pond(fish=7, mode=Mode.SLOW, names=("x", "y", "z"))}
    assert read("--pond.inner.depth", "9", "--pond.deep")[1]["pond"] == Pond(inner=Inner(9), deep=True)
    assert read("--out", "a/b")[0].out == Path("a/b")


def test_the_first_stage_decides_about_the_second() -> None:
    assert read("--env", "forest", "--forest.trees", "5")[1] == {"forest": Forest(5)}
    assert read("--forest.trees", "5", "--env=forest")[1] == {"forest": Forest(5)}
    assert "--forest.trees" in refused("--forest.trees", "5")
    assert "--pond.fish" in refused("--env", "forest", "--pond.fish", "5")


def test_help_shows_what_was_chosen_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        read("--env", "forest", "--help")
    assert not stop.value.code
    said = capsys.readouterr().out
    assert "--forest.trees" in said and "--rate" in said and "--config" in said and "pond." not in said
    with pytest.raises(SystemExit):
        read("-h")
    said = capsys.readouterr().out
    assert "--pond.fish" in said and "How many." in said and "forest." not in said


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--fihs", "3"], ["--fihs"]),
        (["--pond.fihs", "3"], ["--pond.fihs", "--pond.fish"]),
        (["--pond.fish", "many"], ["--pond.fish", "many"]),
        (["--pond.mode", "slwo"], ["--pond.mode", "slwo"]),
        (["--rate", "-1"], ["rate must not be negative"]),
        (["--rate"], ["--rate"]),
        (["stray"], ["stray"]),
        (["--env", "sea"], ["unknown environment 'sea'"]),
        (["--config"], ["--config needs"]),
        (["--config", "/nowhere/x.yaml"], ["cannot read", "/nowhere/x.yaml"]),
    ],
)
def test_bad_command_lines_are_one_line(argv: list[str], words: list[str]) -> None:
    said = refused(*argv)
    assert all(word in said for word in words), said


def test_an_environment_that_names_itself_is_named_once() -> None:
    said = refused("--pond.fish", "-1")
    assert said.startswith("--pond.fish must not be negative") and "pond:" not in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fihs: 3", ["unknown key 'fihs'", "pond"]),
        ("forest: {trees: 3}", ["unknown key 'forest'"]),  # not the chosen environment
        ("pond: {fihs: 3}", ["unknown key 'fihs'", "fish"]),
        ("pond: {fish: many}", ["'many' is not of type int"]),
        ("pond: {fish: true}", ["True is not of type int"]),
        ("pond: {names: x}", ["'x' is not a list"]),
        ("pond: {mode: slwo}", ["slwo"]),
        ("pond: {inner: {width: 3}}", ["unknown key 'width'"]),
        ("rate: -2", ["rate must not be negative"]),
        ("rate: quick", ["quick"]),
        ("- 3", ["must hold settings by name"]),
        ("a: [", ["is not valid"]),
        ("!!python/object/apply:os.getpid []", ["is not valid"]),
        ('a: !!int ""', ["is not valid"]),
        ("a: !!bool x", ["is not valid"]),
        ("a: !!timestamp x", ["is not valid"]),
        ("a: !!set [1]", ["is not valid"]),
        ("1: 2\nfoo: 3", ["unknown key 1"]),
    ],
)
def test_bad_settings_files_are_one_line(tmp_path: Path, text: str, words: list[str]) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    said = refused("--config", str(file))
    assert all(word in said for word in [str(file) if "inner" not in text else "Inner", *words]), said


FULL = (
    First(out=Path("runs/x"), rate=2e-3),
    {
        "pond": Pond(
            fish=9,
            names=("ä", "动"),
            mode=Mode.SLOW,
            maybe=Mode.FAST,
            deep=True,
            targets=("q", "v"),
            inner=Inner(depth=4),
        )
    },
)


@pytest.mark.parametrize("settings", [(First(), {"pond": Pond()}), FULL], ids=["defaults", "all changed"])
def test_what_is_written_is_read_back(tmp_path: Path, settings: tuple[First, dict[str, Any]]) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(dump(*settings), "utf-8")
    assert read("--config", str(file)) == settings
    assert read(f"--config={file}", "--rate", "7")[0].rate == 7  # flags win


def test_all_three_kinds_of_file(tmp_path: Path) -> None:
    values = yaml.safe_load(dump(*FULL))
    del values["pond"]["limit"]  # JSON has no infinity
    (tmp_path / "a.json").write_text(json.dumps(values, indent="\t"))
    (tmp_path / "a.toml").write_text(
        'out = "runs/x"\nrate = 2e-3\nenv = "pond"\n[pond]\nfish = 9\nnames = ["ä", "动"]\nmode = "slow"\n'
        'maybe = "fast"\ndeep = true\ntargets = ["q", "v"]\nlimit = inf\n[pond.inner]\ndepth = 4\n',
        "utf-8",
    )
    (tmp_path / "a.yml").write_text("rate: 2e-3\n")
    assert read("--config", str(tmp_path / "a.json")) == FULL
    assert read("--config", str(tmp_path / "a.toml")) == FULL
    assert read("--config", str(tmp_path / "a.yml"))[0].rate == 2e-3


def test_a_file_can_choose_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("env: forest\nforest: {trees: 8}\n")
    assert read("--config", str(file)) == (First(env="forest"), {"forest": Forest(8)})


def test_every_setting_of_the_programs_is_read_back(tmp_path: Path) -> None:
    """The real settings of every environment and algorithm."""
    from agent_envs import registry
    from algorithms import ALGORITHMS
    from runners.settings.run_settings import parts_of
    from runners.settings.train_settings import Train

    # The parts of an environment and of an algorithm are apart: no pair of the two has settings of its own.
    for env, algo in zip_longest(registry.ENVS, ALGORITHMS):
        settings = parse(Train, parts_of, ["--env", env or "identity", "--algo", algo or "grpo"], about="")
        file = tmp_path / "config.yaml"
        file.write_text(dump(*settings), "utf-8")
        assert parse(Train, parts_of, ["--config", str(file)], about="") == settings


def test_json_has_no_infinities() -> None:
    text = dump_json({"a": math.inf, "b": [math.nan, 1.5], "c": Pond()})
    assert json.loads(text, parse_constant=lambda name: pytest.fail(name))["b"] == [None, 1.5]


def behind_head(program: str, before: str = "") -> tuple[int, str]:
    """Status and errors of a program of which one line of output is read."""
    code = (
        f"{before}\nfrom runners.command_line.errors import run_program\ndef main():\n    {program}\nrun_program(main)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=PIPE, stderr=PIPE, text=True) as running:
        assert running.stdout is not None and running.stderr is not None
        assert running.stdout.readline() == "x\n"
        running.stdout.close()
        told = running.stderr.read()
    return running.returncode, told


def test_output_that_nobody_reads_any_more_ends_a_program_without_a_word() -> None:
    assert behind_head("print('x\\n' * 10**6)") == (141, "")
    rich = "from rich.console import Console\nconsole = Console()"
    assert behind_head("[console.out('x\\n' * 2000) for _ in range(40)]", rich) == (141, ""), "by a console of rich"
    assert behind_head("print('x', flush=True); sys.exit(1)", "import sys") == (1, ""), "the control"


def test_another_broken_pipe_is_still_a_fault() -> None:
    # Its own output is a pipe that is read to the end.
    code = (
        "from runners.command_line.errors import run_program\ndef main():\n    raise BrokenPipeError\nrun_program(main)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == 1 and "Traceback" in found.stderr


TRAIN_HELP = """
import sys
from runners.settings.run_settings import read_settings
sys.argv[0] = "train"
read_settings(sys.argv[1:], about="About.")
"""


def train_help(*argv: str) -> list[str]:
    code = [sys.executable, "-c", TRAIN_HELP, *argv]
    done = subprocess.run(code, capture_output=True, text=True, env={**os.environ, "COLUMNS": "80"}, check=True)
    return done.stdout.splitlines()


def test_the_short_help_fits_two_screens_and_lists_the_names() -> None:
    lines = train_help("--help")
    assert len(lines) <= 120 and max(map(len, lines)) <= 80
    text = " ".join(" ".join(lines).split())
    assert "--wiki.corpus" in text and "--selfac.group" in text and "--help-all" in text
    assert "corridor, gym, household, identity" in text and "gigpo, grpo" in text, "the names to choose from"
    assert "--replay-steps" not in text and "--selfac.std-floor" not in text, "rarer settings are elsewhere"


def test_the_long_help_has_every_flag() -> None:
    text = " ".join(train_help("--help-all"))
    assert all(flag in text for flag in ("--replay-steps", "--selfac.std-floor", "--wiki.corpus", "--lora.rank"))


def test_an_algorithm_with_the_name_of_other_settings_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from algorithms.grpo import GRPO
    from runners.settings import acting
    from runners.settings import run_settings as settings

    monkeypatch.setattr(acting, "algorithm_class", lambda name: GRPO)
    for name in ("lora", "judge", "seed", "envs", "identity"):
        with pytest.raises(UserError) as error:
            settings.read_settings(["--env", "identity", "--algo", name])
        assert (
            str(error.value)
            == f"the algorithm cannot be called {name!r}: --{name} names other settings; rename its entry point"
        )
    assert settings.read_settings(["--env", "identity", "--algo", "mine"]).algorithm == GRPO()


def test_settings_of_version_0_1_are_read(tmp_path: Path) -> None:
    from runners.settings.run_settings import read_settings

    file = tmp_path / "config.yaml"
    file.write_text("env: identity\nworkers: 2\npretrain: {foretell: 0.5}\n")
    found = read_settings(["--config", str(file)])
    assert found.pretrain is not None and found.pretrain.predict == 0.5
    assert found.train.backend == ("process", 2)
    file.write_text("env: identity\npretrain: {foretold: 0.5}\n")
    with pytest.raises(UserError, match="unknown key 'foretold'"):
        read_settings(["--config", str(file)])


def test_a_part_of_another_package_may_have_a_dash_in_its_name(tmp_path: Path) -> None:
    def dashed(first: First) -> Mapping[str, type]:
        return {"my-pond": Pond}

    file = tmp_path / "settings.yaml"
    file.write_text("my_pond: {fish: 4}\n")
    argv = ["--config", str(file), "--my-pond.names", "x", "--my-pond.names", "y"]
    _, found = parse(First, dashed, argv, about="A test.")
    assert found["my-pond"] == Pond(fish=4, names=("x", "y")), "and its lists may be named one by one"


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        ("--env a --env b", "--env a b"),
        ("--env=a --seed 3 --env b c --scorer x", "--env a b c --seed 3 --scorer x"),
        ("--scorer x --env a --scorer=y z --env b", "--scorer x y z --env a b"),
        ("--env a --exact --seed 3 4", "--env a --exact --seed 3 4"),
        ("a --seed=1 --seed=2 --env", "a --seed=1 --seed=2 --env"),
    ],
)
def test_a_list_may_be_named_at_once_or_one_by_one(argv: str, meant: str) -> None:
    assert joined(argv.split(), ["env", "scorer"]) == meant.split()
