"""Entrants of a comparison: names, algorithms and settings, resolved into runs.

Invariant: all that may differ between two runs is the entrant's own settings and the seed; everything is resolved, and
refused where it is wrong, before anything runs.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from runners.command_line.errors import UserError
from runners.run_folder.runs import locate
from runners.settings.fitting import check_fit
from runners.settings.judge import judge_settings
from runners.settings.run_settings import RunSettings, parts_of, read_settings
from runners.settings.train_settings import Train

Values = Mapping[str, Any]
"""Settings by name, as in a file: fields of Train at the top, each part under its name."""
GIVEN = ("seed", "out", "env", "env_steps", "test_tasks")
"""What the comparison decides for every run."""


@dataclass(frozen=True)
class Entrant:
    """A name, an algorithm and its settings, resolved."""

    name: str
    settings: RunSettings

    @property
    def train(self) -> Train:
        return self.settings.train

    def run(self, parent: Path, seed: int) -> PlannedRun:
        folder = parent / f"{self.name}-{seed}"
        train = replace(self.train, seed=seed, out=folder)
        return PlannedRun(self.name, seed, folder, replace(self.settings, train=train))


@dataclass(frozen=True)
class PlannedRun:
    """One training run of the comparison."""

    entrant: str
    seed: int
    folder: Path
    settings: RunSettings

    @property
    def train(self) -> Train:
        return self.settings.train

    @property
    def name(self) -> str:
        return self.folder.name


def split_flags(argv: Sequence[str]) -> list[tuple[str, ...]]:
    """A command line as flags, each with the values that follow it. Raises UserError for a value without a flag."""
    result: list[list[str]] = []
    for word in argv:
        if word.startswith("--") or word == "-h":
            result.append([word])
        elif result:
            result[-1].append(word)
        else:
            raise UserError(f"unexpected {word!r}: settings are given as --NAME VALUE")
    return [tuple(flag) for flag in result]


def flag_name(flag: Sequence[str]) -> str:
    """The setting that a flag sets, without dashes: ``--react.max-tokens=3`` is react.max_tokens."""
    return flag[0].removeprefix("--").partition("=")[0].replace("-", "_")


def named_entrants(algos: Sequence[str], entrants: Any) -> dict[str, dict[str, Any]]:
    """Each entrant's own settings by name, its algorithm among them. Raises UserError."""
    result: dict[str, dict[str, Any]] = {}
    for algo in algos:
        if algo in result:
            raise UserError(f"{algo} is named twice: entrants of one algorithm need names (entrants: in --config)")
        result[algo] = {"algo": algo}
    if not isinstance(entrants or {}, dict):
        raise UserError("entrants: must hold settings by the entrant's name")
    for name, values in (entrants or {}).items():
        if not isinstance(values, dict) or "algo" not in values:
            raise UserError(f"entrant {name}: needs its settings, `algo` at least")
        if not re.fullmatch(r"[^\W_][\w.+-]*", str(name)) or str(name) in result:
            raise UserError(f"entrant {name}: names must differ and hold letters, digits and . + - _ only")
        result[str(name)] = dict(values)
    if len(result) < 2:
        raise UserError("a comparison needs at least two entrants: --algos A B, or entrants: in --config")
    return result


def resolve(
    common: Values, own: Mapping[str, Values], flags: Sequence[tuple[str, ...]], given: Values, console: Console
) -> dict[str, Entrant]:
    """The entrants with all their settings. Raises UserError for what is unknown or wrong.

    ``common`` is for all; a part that only some of them have (an algorithm, the critic) goes to those. An entrant's own
    settings override it, and the command line's ``flags`` override both; ``given`` cannot be set.
    """
    parts = {name: _parts(name, {**common, **values, **given}) for name, values in own.items()}
    anywhere = set().union(*parts.values())
    entrants = {}
    for name, values in own.items():
        foreign = anywhere - parts[name]
        shared = {key: value for key, value in common.items() if key not in foreign}
        mine = [flag for flag in flags if flag_name(flag).partition(".")[0] not in foreign]
        for key in [*shared, *values, *map(flag_name, mine)]:
            if key in GIVEN:
                raise UserError(f"{key} is the comparison's own, the same for every run: entrant {name} cannot set it")
        entrants[name] = _entrant(name, merged(merged(shared, values), given), mine, console)
    return entrants


def merged(below: Values, above: Values) -> dict[str, Any]:
    """Two sets of settings; ``above`` wins, part by part."""
    both = dict(below)
    for key, value in above.items():
        old = both.get(key)
        both[key] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
    return both


@contextmanager
def _blamed(name: str) -> Iterator[None]:
    """What is wrong inside is said of the entrant. Raises UserError."""
    try:
        yield
    except (UserError, TypeError, ValueError) as error:
        raise UserError(f"entrant {name}: {error}") from None


def _parts(name: str, values: Values) -> set[str]:
    top = {key: values[key] for key in ("algo", "model") if key in values} | {"env": (values["env"],)}
    if "init_from" in values:
        top["init_from"] = Path(str(values["init_from"]))
    with _blamed(name):
        parts = set(parts_of(Train(**top)))
    return parts | {"value_lr"} if "critic" in parts else parts


def _entrant(name: str, values: Values, flags: Sequence[tuple[str, ...]], console: Console) -> Entrant:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "settings.yaml"
        file.write_text(yaml.safe_dump(dict(values), allow_unicode=True), "utf-8")
        argv = ["--config", str(file), *(word for flag in flags for word in flag)]
        try:
            settings = read_settings(argv)
        except UserError as error:
            raise UserError(f"entrant {name}: {str(error).replace(f'{file}: ', '')}") from None
    if settings.train.init_from is not None:
        train = replace(settings.train, init_from=locate(settings.train.init_from, console)[1])
        settings = replace(settings, train=train)
    with _blamed(name):
        judge_settings(settings)
        check_fit(settings)
    return Entrant(name, settings)
