"""Writes a package with a new environment, to be filled in: it passes its tests and trains as it is.

turnwise new-env my_env
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    import runners

    runners.run("new_env")

import shlex
from dataclasses import dataclass

import tyro

from agent_envs import registry
from agents.engine.registry import ENGINES
from agents.rollout.registry import AGENTS
from algorithms import REGISTRY as ALGORITHMS
from runners.command_line.errors import UserError
from runners.command_line.parse import parse
from runners.scaffolding.scaffold import check_name, write_env
from runners.settings.run_settings import own_flags


@dataclass(frozen=True)
class NewEnv:
    """Write a package with a new environment: settings, tasks, reward, tests and a page."""

    name: tyro.conf.Positional[str] = ""
    """Name of the environment: small letters, digits and _."""
    out: Path | None = None
    """Folder to write, new or empty; by default turnwise-NAME here."""


def main() -> None:
    settings, _ = parse(NewEnv)
    if not settings.name:
        raise UserError("name the environment: turnwise new-env my_env")
    parts = {name for one in (ALGORITHMS, AGENTS, ENGINES) for name in one.names()}
    # turnwise_verifiers is a module of ours.
    check_name(settings.name, set(registry.REGISTRY.names()), {*own_flags(), *parts, "verifiers"})
    out = settings.out or Path(f"turnwise-{settings.name.replace('_', '-')}")
    for file in write_env(settings.name, out):
        print(file)
    print(f"next: pip install -e {shlex.quote(str(out))}, then turnwise train --env {settings.name} --algo selfac")
