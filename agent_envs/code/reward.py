"""The verdict of the hidden checks on the files at the end of an episode, and what it is worth.

Invariant: nothing is earned where the files stand as they were given; what the sandbox cannot do raises.

The reward is the share of the hidden checks that pass. Where some of them passed at the beginning, as in a file with
one bug, it is the share of the rest, less what no longer passes: nothing is earned by leaving things as they are, nor
by a change that changes nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agent_envs.code import judge
from agent_envs.code.config import CodeConfig
from agent_envs.code.sandbox import Sandbox
from agent_envs.code.task import CodeTask


@dataclass(frozen=True)
class Verdict:
    """How many hidden checks pass, and what that is worth."""

    passed: int
    total: int
    reward: float


def reward(passed: int, total: int, at_start: Callable[[], int]) -> float:
    """max(0, (passed - start) / (total - start)), and 1 where all pass; ``at_start`` is asked only where it matters."""
    if not 0 <= passed <= total:
        raise ValueError(f"{passed} of {total} checks cannot pass")
    if passed == total:
        return 1.0
    if passed == 0:
        return 0.0
    start = at_start()
    return max(0.0, (passed - start) / (total - start)) if start < total else 0.0


def decide(task: CodeTask, files: Mapping[str, str], config: CodeConfig, sandbox: Sandbox) -> Verdict:
    """The verdict on these files. Raises SandboxFault."""
    total = 1 if task.grader and config.forgeable else len(task.hidden)
    if dict(files) == dict(task.files):
        return Verdict(0, total, 0.0)
    passed = _passes(task, files, config, sandbox)
    return Verdict(passed, total, reward(passed, total, lambda: _passes(task, task.files, config, sandbox)))


def _passes(task: CodeTask, files: Mapping[str, str], config: CodeConfig, sandbox: Sandbox) -> int:
    if config.forgeable:
        checked = judge.in_process(sandbox, files, task.hidden, task.grader, limits=config.limits)
    else:
        checked = judge.check(sandbox, files, task.hidden, seconds=config.case_seconds, memory_mb=config.memory_mb)
    return sum(check.passed for check in checked)
