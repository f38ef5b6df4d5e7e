"""The verdict of the hidden checks on the files at the end of an episode.

Invariant: nothing is earned where the files stand as they were given; what the sandbox cannot do raises.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from agent_envs.code import judge
from agent_envs.code.config import CodeConfig
from agent_envs.code.reward import reward
from agent_envs.code.sandbox import Sandbox
from agent_envs.code.task import CodeTask


@dataclass(frozen=True)
class Verdict:
    """How many hidden checks pass, and what that is worth."""

    passed: int
    total: int
    reward: float


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
