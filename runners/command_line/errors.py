"""Errors that a user can fix, shown as one line."""

import io
import os
import signal
import sys
import threading
from collections.abc import Callable

from runners.command_line.interrupts import importing, raise_again


class UserError(Exception):
    """An error that the user can fix; shown as one line, without a traceback."""


def run_program(main: Callable[[], None]) -> None:
    """Runs ``main``; an error that the user can fix ends it with one line on stderr and exit status 2.

    When its output is closed, as by ``| head``, it ends silently with a shell's status.
    """
    with importing():
        from agent_envs.core import BackendUnavailable, SettingsError
        from agents.text.errors import ChatError, EngineError, ModelError

    if sys.stdout is None:  # the next file that is opened would be taken for it
        sys.exit(_fail("the standard output is closed: redirect it, to /dev/null if nobody reads it"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without Unicode must not cost a result
    raise_again()
    try:
        main()
        sys.stdout.flush()
    except (UserError, SettingsError, BackendUnavailable, ModelError, ChatError, EngineError) as error:
        sys.exit(_fail(str(error)))
    except KeyboardInterrupt as interrupt:
        sys.exit(_fail("interrupted", 128 + (interrupt.args or (signal.SIGINT,))[0]))
    except BrokenPipeError:
        if _closed("\n"):
            sys.exit(CLOSED)
        raise
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # a console of rich met the closed output, and said 1
            sys.exit(CLOSED)
        raise
    except OSError as error:
        _closed()
        sys.exit(_fail(f"{place_of(error) or 'the output'}: {error.strerror or error}"))
    except MemoryError:
        sys.exit(_fail(NO_MEMORY))
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        sys.exit(_fail(NO_MEMORY))


def place_of(error: OSError) -> str | None:
    """The file that an error names, if it does; some libraries say it in bytes."""
    name = error.filename
    return os.fsdecode(name) if isinstance(name, str | bytes | os.PathLike) else None


def tell_once() -> None:
    """What TensorBoard's thread cannot write it also reports to the run, which says so: no traceback beside it."""
    usual = threading.excepthook

    def hook(raised: threading.ExceptHookArgs) -> None:
        if not (isinstance(raised.exc_value, OSError) and type(raised.thread).__name__ == "_AsyncWriterThread"):
            usual(raised)

    threading.excepthook = hook


def out_of_memory(error: Exception) -> bool:
    """Whether a library's own error says that there is no memory left."""
    signs = ("can't allocate memory", "out of memory", "can't start new thread")
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)


CLOSED = 128 + signal.SIGPIPE
"""Status of a program whose output nobody reads any more, as a shell gives it."""
NO_MEMORY = "out of memory: lower --slots, --episodes or --token-budget, or take a smaller model"


def _closed(last: str = "") -> bool:
    """Whether nothing can be printed any more, not even ``last``; what is flushed at the end is not to fail again."""
    try:
        print(end=last, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return True
    return False


def _fail(message: str, status: int = 2) -> int:
    print(f"error: {message}", file=sys.stderr)
    return status
