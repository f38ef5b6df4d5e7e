"""Makes the tiny model for environments and puts it into the cache; ``train --model tiny`` does so by itself."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    import runners

    runners.run("pretrain")

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console

from agent_envs import registry
from runners.cloning.settings import PretrainSettings
from runners.command_line.interrupts import importing
from runners.command_line.parse import parse
from runners.settings.play_settings import check_envs, with_list


@dataclass(frozen=True)
class PretrainProgram:
    """Make the tiny model for an environment, or for several, and put it into the cache."""

    env: tuple[str, ...] = ("wiki",)
    """Environment whose texts and scripted expert are used; several make one model for all of them."""

    def __post_init__(self) -> None:
        check_envs(self.env)

    @staticmethod
    def adopted(values: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a settings file."""
        return with_list(values)


def main() -> None:
    def parts(program: PretrainProgram) -> Mapping[str, type]:
        envs = {name: registry.env_class(name).Config for name in program.env}
        return {**envs, "pretrain": PretrainSettings}

    program, chosen = parse(PretrainProgram, parts)
    with importing():
        from runners.cloning.tiny_model import ensure_tiny

    torch.set_num_threads(1)
    envs = [registry.make(name, chosen[name]) for name in program.env]
    print(ensure_tiny(envs, chosen["pretrain"], Console(stderr=True)))
