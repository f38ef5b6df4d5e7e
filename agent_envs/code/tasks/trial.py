"""Trials of changed programs in a sandbox, where an endless or greedy one harms nothing.

Invariant: what is said of a version depends on its text and the checks alone, not on how fast the machine is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources

from agent_envs.code.sandbox import Limits, Sandbox
from agent_envs.code.task import Case

BUDGET = 20_000
"""Lines that one call may execute."""
_ORDER = ("other.py", "helper.py", "main.py")
_LIMITS = Limits(seconds=60, memory_mb=256, processes=1, output_kb=256, collected_kb=0)
_ALONE = Limits(seconds=5, memory_mb=256, processes=1, output_kb=64, collected_kb=0)


def failures(sandbox: Sandbox, versions: Sequence[Mapping[str, str]], cases: Sequence[Case]) -> list[str | None]:
    """For each version a letter for each case, as in `trial_run`; None where the run itself was ended.

    Raises SandboxFault.
    """
    told = _run(sandbox, versions, cases, _LIMITS)
    if len(told) == len(versions):
        return list(told)
    alone = [_run(sandbox, [version], cases, _ALONE) for version in versions]
    return [lines[0] if lines else None for lines in alone]


def _run(sandbox: Sandbox, versions: Sequence[Mapping[str, str]], cases: Sequence[Case], limits: Limits) -> list[str]:
    job = {
        "versions": [[(name[:-3], files[name]) for name in _ORDER if name in files] for files in versions],
        "cases": [(case.expression, repr(case.expected)) for case in cases],
        "budget": BUDGET,
    }
    result = sandbox.run(["python", "-c", _program()], stdin=json.dumps(job).encode(), limits=limits)
    return [line for line in result.stdout.decode("ascii", "replace").split() if len(line) == len(cases)]


@cache
def _program() -> str:
    return resources.files("agent_envs.code.tasks").joinpath("trial_run.py").read_text("utf-8")
