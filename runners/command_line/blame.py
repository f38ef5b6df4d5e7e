"""An environment, which may be another package's, is blamed for what it raises in this process."""

from collections.abc import Iterator
from contextlib import contextmanager

from agent_envs.core import BackendUnavailable, SettingsError
from agent_envs.isolation.faults import one_line
from runners.command_line.errors import UserError


@contextmanager
def blamed(env: str, doing: str) -> Iterator[None]:
    """An exception of the environment ``env`` becomes a UserError that says what it was ``doing``."""
    try:
        yield
    except (BackendUnavailable, SettingsError, UserError, MemoryError, BrokenPipeError):
        raise
    except Exception as error:
        raise UserError(f"the environment {env} failed {doing}: {one_line(error)}") from error
