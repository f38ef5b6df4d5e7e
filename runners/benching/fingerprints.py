"""The tasks of a suite on this machine, and their fingerprints.

Invariant: a fingerprint is of what an agent is set and judged by, its instructions and every task with its payload, and
of nothing else: where tasks are equal, it is the same on every machine and in every process.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from hashlib import sha256
from importlib import metadata
from typing import Any

from agent_envs import registry
from agent_envs.core import Task, TextEnv
from runners.benching.suites import Entry, Suite
from runners.command_line.errors import UserError
from runners.command_line.plain import dump_json
from runners.evaluation.tasks import pick_tasks

LENGTH = 16
"""Digits of a fingerprint."""


@dataclass(frozen=True)
class FixedTasks:
    """An entry with its environment and its tasks."""

    entry: Entry
    env: TextEnv
    tasks: tuple[Task, ...]


def fingerprint(env: TextEnv, tasks: Sequence[Task]) -> str:
    """Hash of the instructions and the tasks of an environment."""
    return digest({"instructions": env.system_prompt(), "tasks": [canonical(task) for task in tasks]})


def digest(values: Any) -> str:
    """Hash of plain values, the same wherever they are equal."""
    return sha256(dump_json(values, indent=None).encode("utf-8", "surrogatepass")).hexdigest()[:LENGTH]


def canonical(value: Any) -> Any:
    """Any payload as plain values in a fixed order."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: canonical(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): canonical(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, (set, frozenset)):
        return sorted(repr(canonical(one)) for one in value)
    if isinstance(value, (list, tuple)):
        return [canonical(one) for one in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)


def fixed_tasks(suite: Suite) -> list[FixedTasks]:
    """The tasks of every entry. Raises UserError where this machine makes others than the suite holds."""
    return [_checked(suite, entry) for entry in suite.entries]


def made(entry: Entry) -> FixedTasks:
    """The tasks of an entry as this machine makes them."""
    env = registry.from_settings(entry.env, **entry.settings)
    return FixedTasks(entry, env, tuple(pick_tasks(env, entry.split, entry.tasks)))


def _checked(suite: Suite, entry: Entry) -> FixedTasks:
    fixed = made(entry)
    here = fingerprint(fixed.env, fixed.tasks)
    if here != entry.fingerprint:
        raise UserError(
            f"{suite.name}: the tasks of {entry.name} on this machine are not those of the suite (fingerprint {here}, "
            f"not {entry.fingerprint}){_other_version(entry)}: no row of them could be compared"
        )
    return fixed


def _other_version(entry: Entry) -> str:
    """Says which version of an outside package made the tasks, where another one is installed."""
    name, _, version = entry.package.partition(" ")
    installed = metadata.version(name) if name else version
    return "" if installed == version else f"; they were made by {entry.package}, and {installed} is installed"
