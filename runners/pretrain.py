"""Makes the tiny model for an environment and puts it into the cache; ``train --model tiny`` does so by itself."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
import runners

if __name__ == "__main__":
    runners.check_install()

import torch
from rich.console import Console

from agent_envs import registry
from runners.cloning.settings import PretrainSettings
from runners.cloning.tiny_model import ensure_tiny
from runners.command_line.errors import run_program
from runners.command_line.parse import parse


@dataclass(frozen=True)
class PretrainProgram:
    """Make the tiny model for an environment and put it into the cache."""

    env: str = "wiki"
    """Environment whose texts and scripted expert are used."""


def main() -> None:
    def parts(program: PretrainProgram) -> Mapping[str, type]:
        return {program.env: registry.env_class(program.env).Config, "pretrain": PretrainSettings}

    program, chosen = parse(PretrainProgram, parts, about=PretrainProgram.__doc__ or "")
    torch.set_num_threads(1)
    env = registry.make(program.env, chosen[program.env])
    print(ensure_tiny(env, chosen["pretrain"], Console(stderr=True)))


if __name__ == "__main__":
    run_program(main)
