"""Faults: failures outside the model. A broken environment is neither a reward of 0 nor an observation.

Invariant: a fault says what broke, in which call, and nothing about the agent; a bad action is never a fault.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

from agent_envs.core import BackendUnavailable, SettingsError


class FaultKind(StrEnum):
    """How an environment broke."""

    RAISED = "raised"
    """It raised an exception."""
    UNAVAILABLE = "unavailable"
    """It raised BackendUnavailable: a disk or a service that it needs failed."""
    HUNG = "hung"
    """It did not answer before its deadline; its process was killed."""
    EXITED = "exited"
    """Its process ended: it exited, crashed or was killed from outside."""
    MEMORY = "memory"
    """It asked for more memory than it may have."""
    FLOODED = "flooded"
    """Its answer, or what it printed, was larger than it may be."""
    GARBAGE = "garbage"
    """It answered something that is not what Gymnasium asks for."""


class Stage(StrEnum):
    """The call in which it broke. Grading happens inside the step that ends an episode."""

    MAKE = "make"
    RESET = "reset"
    STEP = "step"
    FORK = "fork"
    CLOSE = "close"


class EnvFault(Exception):  # noqa: N818 (a state of the world, not a mistake of the caller)
    """The environment broke in a call of this episode; the environment must not be used again."""

    def __init__(self, kind: FaultKind, stage: Stage, message: str) -> None:
        super().__init__(kind, stage, message)  # these alone: an exception is unpickled from its arguments
        self.kind, self.stage, self.message = kind, stage, message

    def __str__(self) -> str:
        return f"{self.stage}: {self.kind}: {self.message}"


class HostLost(Exception):  # noqa: N818
    """The process that this environment lived in was ended because of another environment: play the episode again."""


@contextmanager
def blamed(stage: Stage) -> Iterator[None]:
    """Whatever the environment raises in here becomes an EnvFault; SettingsError, which a user can fix, stays."""
    try:
        yield
    except (EnvFault, HostLost, SettingsError):
        raise
    except Exception as error:
        raise EnvFault(kind_of(error), stage, one_line(error)) from error


def kind_of(error: Exception) -> FaultKind:
    """What an exception of an environment means."""
    kinds = {MemoryError: FaultKind.MEMORY, BackendUnavailable: FaultKind.UNAVAILABLE}
    return next((kind for known, kind in kinds.items() if isinstance(error, known)), FaultKind.RAISED)


def one_line(error: BaseException, limit: int = 500) -> str:
    """`ValueError: its text`, in one line of at most ``limit`` characters."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
