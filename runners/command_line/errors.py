"""Errors that a user can fix, shown as one line."""

import os
import sys
from collections.abc import Callable


class UserError(Exception):
    """An error that the user can fix; shown as one line, without a traceback."""


def run_program(main: Callable[[], None]) -> None:
    """Runs ``main``; an error that the user can fix ends it with one line on stderr and exit status 2.

    When its output is closed, as by ``| head``, it ends silently with a shell's status.
    """
    from agent_envs.core import BackendUnavailable, SettingsError
    from agents.text.errors import ChatError, EngineError, ModelError

    try:
        main()
    except (UserError, SettingsError, BackendUnavailable, ModelError, ChatError, EngineError) as error:
        sys.exit(_fail(str(error)))
    except KeyboardInterrupt:
        sys.exit(_fail("interrupted", 130))
    except BrokenPipeError:
        try:
            print(flush=True)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is flushed at the end is not to fail again
            sys.exit(141)
        raise


def _fail(message: str, status: int = 2) -> int:
    print(f"error: {message}", file=sys.stderr)
    return status
