"""Serves an environment over the Model Context Protocol, so that any agent that speaks it can play.

turnwise serve-mcp --env wiki --split test
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    import runners

    runners.run("serve_mcp")

from dataclasses import dataclass
from typing import NoReturn

from agent_envs import registry
from agent_envs.core import SPLITS
from agent_envs.ranges import check_name, check_ranges
from runners.command_line.blame import blamed
from runners.command_line.errors import UserError
from runners.command_line.interrupts import end_now
from runners.command_line.parse import parse
from runners.settings.play_settings import check_envs


@dataclass(frozen=True)
class ServeMCP:
    """Serve an environment over the Model Context Protocol, on standard input and output."""

    env: str = "wiki"
    """Environment to serve; its settings are the flags --ENV.…"""
    split: str = "test"
    """Split that tasks are drawn from: train, valid or test."""
    seed: int | None = None
    """Seed of the draws and of the environment; without it every session differs."""

    def __post_init__(self) -> None:
        check_envs((self.env,))
        check_name(self, "split", SPLITS)
        if self.seed is not None:
            check_ranges(self, seed=(0, 2**63 - 1))


def main() -> None:
    program, parts = parse(ServeMCP, lambda chosen: {chosen.env: registry.env_class(chosen.env).Config})
    try:
        import anyio

        from runners.interop.for_mcp import serve
    except ImportError as error:
        raise UserError(f"serve-mcp needs the official SDK ({error}): pip install 'turnwise[mcp]'") from None
    from runners.interop.mcp_calls import Calls

    env = registry.make(program.env, parts[program.env])

    def end(number: int) -> NoReturn:
        """A thread of the SDK waits for the client, and would keep the process."""
        env.close()
        end_now(number)

    try:
        with blamed(program.env, "in play"):
            env.prepare()
            anyio.run(serve, Calls(env, program.split, program.seed), end)
    finally:
        env.close()
