"""The bugs that tasks are made of: listed in `bugs.jsonl`, each tried in a sandbox when the list was made.

Invariant: every listed bug ends on every check of its program's pool, fails at least `LEAST` of them, and does not
raise on all. Nothing is run to read the list. A program that changed since is refused.

``python -m agent_envs.code.tasks.bugs`` makes the list again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

from agent_envs.code.sandbox import Sandbox
from agent_envs.code.sandbox.choose import open_sandbox
from agent_envs.code.tasks.catalogue import Program, programs
from agent_envs.code.tasks.mutate import Mutant, mutants
from agent_envs.code.tasks.settings import Operator
from agent_envs.code.tasks.trial import failures

LEAST = 3
"""Checks of the pool that a bug fails at least: one for the agent to see, one that pays, and one to spare."""
PAIRS = 12
"""Pairs of bugs in two files, of each program that has several."""
_FILE = "bugs.jsonl"


@dataclass(frozen=True)
class Bug:
    """One bug of a program, or two in two of its files."""

    edits: tuple[tuple[str, Mutant], ...]
    """(file, edit)."""
    failed: int
    """Bit i is set when check i of the pool fails."""

    @property
    def operators(self) -> frozenset[Operator]:
        return frozenset(edit.operator for _, edit in self.edits)

    def fails(self, check: int) -> bool:
        """Whether that check of the pool fails."""
        return bool(self.failed >> check & 1)

    def apply(self, files: Mapping[str, str]) -> dict[str, str]:
        """The program's files with the bug."""
        return {**files, **{name: edit.apply(files[name]) for name, edit in self.edits}}


def bugs_of(program: Program) -> tuple[Bug, ...]:
    """The bugs of a program. Raises ValueError when the list is not that of the library."""
    row = _rows().get(program.name)
    if row is None or row["digest"] != program.digest:
        raise ValueError(f"{_FILE} does not know {program.name} as it is: python -m {__name__} makes it again")
    return tuple(_read(*bug) for bug in row["bugs"])


def operators_of(program: Program) -> Sequence[frozenset[Operator]]:
    """For each bug of a program what kinds of mistakes it is made of; the program's checks are not needed for that."""
    return [frozenset(Operator(edit[1]) for edit in edits) for _, *edits in _rows()[program.name]["bugs"]]


@cache
def _rows() -> Mapping[str, Mapping[str, Any]]:
    lines = resources.files(__package__).joinpath(_FILE).read_text("utf-8").splitlines()
    return {row["name"]: row for row in map(json.loads, lines)}


def _read(failed: str, *edits: tuple[str, str, int, int, str]) -> Bug:
    read = [(name, Mutant(Operator(operator), start, end, new)) for name, operator, start, end, new in edits]
    return Bug(tuple(read), int(failed, 16))


def _write(bug: Bug) -> list[object]:
    return [
        f"{bug.failed:x}",
        *([name, edit.operator, edit.start, edit.end, edit.new] for name, edit in bug.edits),
    ]


def find(program: Program, sandbox: Sandbox) -> tuple[Bug, ...]:
    """Every bug of a program that tasks can be made of. Raises SandboxFault."""
    single = {name: [((name, edit),) for edit in mutants(text)] for name, text in program.files.items()}
    edits: list[tuple[tuple[str, Mutant], ...]] = [one for result in single.values() for one in result]
    kept = list(_tried(program, edits, sandbox))
    if len(program.files) > 1:
        good = {name: [bug.edits for bug in kept if bug.edits[0][0] == name] for name in program.files}
        names = list(program.files)
        pairs = [
            a + b
            for i, first in enumerate(names)
            for second in names[i + 1 :]
            for a, b in product(good[first], good[second])
        ]
        rng = Random(f"pairs-{program.name}")
        kept += _tried(program, rng.sample(pairs, min(PAIRS, len(pairs))), sandbox)
    return tuple(kept)


def _tried(program: Program, edits: Sequence[tuple[tuple[str, Mutant], ...]], sandbox: Sandbox) -> Iterator[Bug]:
    candidates = [Bug(result, 0) for result in edits]
    told = failures(sandbox, [bug.apply(program.files) for bug in candidates], program.pool)
    for bug, letters in zip(candidates, told, strict=True):
        if letters is None or "t" in letters or set(letters) == {"!"}:
            continue
        failed = sum(1 << i for i, letter in enumerate(letters) if letter != "=")
        if failed.bit_count() >= LEAST:
            yield Bug(bug.edits, failed)


def main() -> None:
    place = Path(__file__).with_name(_FILE)
    with open_sandbox() as sandbox, place.open("w", encoding="utf-8") as file:
        for program in programs().values():
            result = find(program, sandbox)
            row = {"name": program.name, "digest": program.digest, "bugs": [_write(bug) for bug in result]}
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
            print(f"{program.name}: {len(result)}", file=sys.stderr)


if __name__ == "__main__":
    main()
