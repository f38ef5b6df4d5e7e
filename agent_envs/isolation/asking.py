"""A request to a process of ours that may be killed, seen from its parent.

Invariant: it ends, by an answer that was read as JSON of bounded length, or by `Broken`.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from agent_envs.isolation.answers import SLACK, Garbage, decode
from agent_envs.isolation.child import Child, Oversize
from agent_envs.isolation.faults import FaultKind

_GRACE = 1.0
"""Seconds that a process gets to end by itself after it closed its connection, so that how it ended is known."""


class Broken(Exception):  # noqa: N818 (a state of the world)
    """There was no answer, and the process is of no further use."""

    def __init__(self, kind: FaultKind, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind, self.message = kind, message


def asked(child: Child, messages: Iterable[bytes], serial: int, seconds: float, limit: int) -> tuple[str, Any]:
    """(beginning, value) of the answer to request number ``serial``, the last of ``messages``, as `decode` gives them.

    Raises Broken where none of at most ``limit`` bytes came in that many seconds.
    """
    since = monotonic()
    send(child, messages, since, seconds)
    return receive(child, serial, since, seconds, limit)


def send(child: Child, messages: Iterable[bytes], since: float, seconds: float) -> None:
    """Raises Broken where the process has not read them ``seconds`` after ``since``."""
    with _telling(child, seconds):
        for message in messages:
            child.send_bytes(message, since + seconds - monotonic())


def receive(child: Child, serial: int, since: float, seconds: float, limit: int) -> tuple[str, Any]:
    """As `asked`, of a request that was sent: the first of those that have no answer yet."""
    with _telling(child, seconds):
        return decode(child.recv_bytes(since + seconds - monotonic(), limit + SLACK), serial)


@contextmanager
def _telling(child: Child, seconds: float) -> Iterator[None]:
    """Raises Broken for what goes wrong within."""
    try:
        yield
    except TimeoutError:
        raise Broken(FaultKind.HUNG, f"no answer in {seconds:g} s") from None
    except Oversize as error:
        raise Broken(FaultKind.FLOODED, str(error)) from None
    except Garbage as error:
        raise Broken(FaultKind.GARBAGE, str(error)) from None
    except EOFError:
        raise _gone(child) from None


def _gone(child: Child) -> Broken:
    """The process ended, or closed its connection."""
    how = child.ending(_GRACE)
    if child.alive:
        how = "it closed its connection"
    if child.flooded:
        return Broken(FaultKind.FLOODED, "it printed more than it may")
    printed = child.tail()
    _, crash, where = printed.partition("Fatal Python error: ")  # its innermost frame comes first
    last_words = " ".join((crash + where)[:400].split() if crash else printed[-400:].split())
    return Broken(FaultKind.EXITED, f"{how}{'; last it printed: ' if last_words else ''}{last_words}")
