"""The Java server that plays the games.

Invariants: a process of Python has one server at most, which starts with its first game; only this process can use it,
for its port is on loopback and wants a token that no command line shows; it ends with the process, however that ends,
because it reads a pipe that the end of the process closes.
"""

import atexit
import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agent_envs.core import BackendUnavailable, SettingsError

JAR = "textworld-express.jar"
_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m")
"""One collector thread and quick compilation: twice as fast to start, and no slower over a few thousand steps."""
_SECONDS = 5.0
_STARTING = threading.Lock()


class Failed(BackendUnavailable):
    """The server's own code raised something."""


@dataclass
class Seat:
    """One of the server's players: it plays one game at a time."""

    interface: Any
    server: "Server"
    home: list["Seat"]
    """Seats that have the same game loaded and that nobody uses."""
    owner: object = None
    """Whose game it is playing."""
    lock: threading.RLock = field(default_factory=threading.RLock)

    def leave(self) -> None:
        """Lets the next game have it."""
        self.owner = None
        self.home.append(self)


@dataclass
class Server:
    """A Java process that is running."""

    gateway: Any
    process: Any
    idle: dict[tuple[str, str], list[Seat]] = field(default_factory=lambda: defaultdict(list))
    """Seats that nobody uses, by the game and the parameters that they have loaded."""

    def seat(self, game: str, params: str) -> Seat:
        """A seat that has the game loaded. Raises SettingsError for parameters that the game refuses."""
        home = self.idle[game, params]
        with suppress(IndexError):
            return home.pop()
        with talking(self):
            interface = self.gateway.jvm.textworldexpress.runtime.PythonInterface()
            refused = interface.load(game, params)
        if refused:
            raise SettingsError(f"textworld_express: {game}: {' '.join(str(refused).split())}")
        return Seat(interface, self, home)

    def stop(self) -> None:
        """Ends the process."""
        with suppress(Exception):  # it may be gone already
            self.gateway.shutdown()
        with suppress(Exception):
            self.process.stdin.close()
            self.process.wait(_SECONDS)


def server() -> Server:
    """The server of this process. Raises SettingsError where the package or Java is missing, BackendUnavailable where
    it does not start."""
    with _STARTING:
        return _server()


@cache
def _server() -> Server:
    jar = _jar()
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    try:
        port, token, process = launch_gateway(
            classpath=str(jar), cwd=str(jar.parent), javaopts=list(_OPTIONS), java_path=None,
            die_on_exit=True, enable_auth=True, return_proc=True, create_new_process_group=True,
        )  # fmt: skip
    except OSError as error:
        hint = "install a Java runtime, or set JAVA_HOME to the one that there is"
        raise SettingsError(f"textworld_express: java cannot be started ({error.strerror}): {hint}") from error
    except ValueError as error:  # it printed no port
        raise BackendUnavailable("textworld_express: Java ended before the games were loaded: memory?") from error
    # The collector of Python must not talk to the server: seats are given back, and none is ever deleted.
    how = GatewayParameters(port=port, auth_token=token, enable_memory_management=False)
    started = Server(JavaGateway(gateway_parameters=how), process)
    atexit.register(started.stop)
    return started


def _jar() -> Path:
    """Where the games are. Raises SettingsError where a package is missing."""
    found = find_spec("textworld_express")
    if found is None or not found.submodule_search_locations or find_spec("py4j") is None:
        raise SettingsError("textworld_express: the package is missing: pip install 'turnwise[textworld-express]'")
    return Path(found.submodule_search_locations[0]) / JAR


@contextmanager
def talking(to: Server) -> Iterator[None]:
    """Around calls of a server. Raises Failed where its code raises, and BackendUnavailable where it is gone: the next
    game then starts another one, unless there is one already."""
    from py4j.protocol import Py4JError, Py4JNetworkError

    try:
        yield
    except (Py4JNetworkError, OSError) as error:
        with _STARTING:
            if _server.cache_info().currsize and _server() is to:
                _server.cache_clear()
        raise BackendUnavailable("textworld_express: the Java server has ended") from error
    except Py4JError as error:
        reason = next((line for line in str(error).splitlines() if line.startswith(": ")), str(error))
        raise Failed(f"textworld_express: the Java server failed{' '.join(reason.split()):.300}") from error


def _forked() -> None:
    """In a fork of this process: the server is the parent's. The pipe is let go of, so that it ends with the parent."""
    if _server.cache_info().currsize:
        theirs = _server()
        atexit.unregister(theirs.stop)
        theirs.process.stdin.close()
        _server.cache_clear()


os.register_at_fork(after_in_child=_forked)
