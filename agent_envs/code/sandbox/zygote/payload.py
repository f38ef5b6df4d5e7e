"""The process that becomes the program.

Invariant: when the first line of the program runs, the process is caged, holds no descriptor but its three streams, and
has an environment that is the same in every run.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from typing import NoReturn

from agent_envs.code.sandbox.zygote import linux, processors, python
from agent_envs.code.sandbox.zygote.cage import Bounds, Cage

_NOT_FOUND, _NOT_RUNNABLE = 127, 126  # as a shell says it


def become(cage: Cage, argv: list[str], bounds: Bounds, streams: Mapping[int, int], say: int) -> NoReturn:
    """Turns this fork into the program ``argv``; what keeps it from that is written to ``say``."""
    try:
        linux.die_with_parent(signal.SIGKILL)
        os.setsid()
        for fd, pipe in streams.items():
            os.dup2(pipe, fd)
        os.chdir(cage.work)
        if os.environ["TMPDIR"] != cage.temporary:
            os.environ["HOME"] = os.environ["TMPDIR"] = cage.temporary
        processors.let_go()
        cage.confine(bounds)
        linux.close_range(3, say - 1)
        linux.close_range(say + 1, linux.LAST_DESCRIPTOR)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    except BaseException as error:
        os.write(say, f"{type(error).__name__}: {error}"[:1000].encode("utf-8", "replace"))
        os._exit(1)
    os.close(say)
    if python.runs_here(argv):
        python.run(argv)
    _execute(argv)


def set_environment(folder: str) -> None:
    """Gives this process the environment of programs, whose temporary folder is ``folder``."""
    os.environ.clear()
    os.environ |= {
        "HOME": folder,
        "LANG": "C.UTF-8",
        "PATH": f"{os.path.dirname(sys.executable)}:/usr/local/bin:/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "TMPDIR": folder,
    }


def _execute(argv: list[str]) -> NoReturn:
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # which Python ignores
    program = sys.executable if argv[0] in python.NAMES else argv[0]
    try:
        os.execvp(program, argv)
    except FileNotFoundError:
        text, status = f"{argv[0]}: command not found\n", _NOT_FOUND
    except OSError as error:
        text, status = f"{argv[0]}: {error.strerror}\n", _NOT_RUNNABLE
    os.write(2, text.encode("utf-8", "replace"))
    os._exit(status)
