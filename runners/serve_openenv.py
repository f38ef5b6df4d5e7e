"""Serves an environment to OpenEnv's clients.

turnwise serve-openenv --env wiki --split train --port 8000
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    import runners

    runners.run("serve_openenv")

import socket
from dataclasses import dataclass
from functools import partial

from agent_envs import registry
from agent_envs.core import SPLITS
from agent_envs.ranges import check_name, check_ranges
from runners.command_line.blame import blamed
from runners.command_line.errors import UserError
from runners.command_line.parse import parse
from runners.settings.play_settings import check_envs


@dataclass(frozen=True)
class ServeOpenEnv:
    """Serve an environment to OpenEnv's clients, each of which plays in an environment of its own."""

    env: str = "wiki"
    """Environment to serve; its settings are the flags --ENV.…"""
    split: str = "train"
    """Split that tasks are drawn from where a client names none: train, valid or test."""
    host: str = "127.0.0.1"
    """Address to listen on. There is no login: on any other than this machine's own, whoever reaches it can play."""
    port: int = 8000
    """Port to listen on; 0 takes a free one."""
    sessions: int = 8
    """Clients at a time; further ones are refused."""

    def __post_init__(self) -> None:
        check_envs((self.env,))
        check_name(self, "split", SPLITS)
        check_ranges(self, port=(0, 65535), sessions=(1, 1024))


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises UserError."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family)
    except (OSError, ValueError) as error:  # a host that is no name is a UnicodeError
        why = getattr(error, "strerror", None) or error
        raise UserError(f"cannot listen on {host}, port {port}: {why}") from None


def main() -> None:
    program, parts = parse(ServeOpenEnv, lambda chosen: {chosen.env: registry.env_class(chosen.env).Config})
    try:
        import uvicorn

        from runners.interop.for_openenv import app
    except ImportError as error:
        raise UserError(f"serve-openenv needs OpenEnv ({error}): pip install 'turnwise[openenv]'") from None
    with blamed(program.env, "in play"):
        served = app(partial(registry.make, program.env, parts[program.env]), program.split, program.sessions)
    with listening(program.host, program.port) as there:
        print(f"{program.env} at http://{program.host}:{there.getsockname()[1]} (Ctrl-C ends it)", flush=True)
        uvicorn.Server(uvicorn.Config(served, log_level="warning")).run(sockets=[there])
