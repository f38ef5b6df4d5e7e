"""Python programs run in the warm interpreter itself, as close to a fresh one as can be told from inside.

Invariants:

- What a program sees is what ``python -S program`` shows: ``__main__``, ``sys.argv``, ``sys.path``, tracebacks without
  a line of ours, exit status, output flushed, exit handlers run.
- A module in the program's folder comes before one of the standard library, though that one is loaded already.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import signal
import sys
import types
from typing import NoReturn

NAMES = ("python", "python3")
_OURS = "agent_envs"
_NOT_FLUSHED = 120  # as Python says it
_streams: list[io.TextIOWrapper] = []
_kept: list[types.ModuleType] = []
_at_start: frozenset[str] = frozenset()


def remember_start() -> None:
    """To be called before modules are loaded for programs: what is there now, a fresh interpreter has as well."""
    global _at_start
    _at_start = frozenset(set(_FROZEN.split()) & set(sys.modules) | set(sys.builtin_module_names))


_FROZEN = """
__main__ _abc _codecs _collections_abc _frozen_importlib _frozen_importlib_external _io _signal _stat _thread
_warnings _weakref abc builtins codecs encodings encodings.aliases encodings.utf_8 genericpath io marshal os os.path
posix posixpath stat sys time zipimport
"""


def hide_ours() -> None:
    """Takes out of sight what a fresh interpreter does not have: our modules, and where they come from."""
    ours = [name for name in sys.modules if name == _OURS or name.startswith(_OURS + ".")]
    _kept.extend(map(sys.modules.pop, ours))  # they are in use
    sys.path_importer_cache.clear()
    sys.meta_path[:] = [finder for finder in sys.meta_path if not getattr(finder, "turnwise", False)]


def make_streams() -> None:
    """Makes the streams of programs, over pipes, as theirs will be, which take the place of our own for a moment."""
    read, write = os.pipe()
    own = [os.dup(fd) for fd in (0, 1, 2)]
    for fd, end in enumerate((read, write, write)):
        os.dup2(end, fd)
    _streams.extend((_stream(0, "r"), _stream(1, "w"), _stream(2, "w", "backslashreplace", lines=True)))
    for fd, before in enumerate(own):
        os.dup2(before, fd)
    for fd in (read, write, *own):
        os.close(fd)


def _stream(fd: int, mode: str, errors: str = "surrogateescape", *, lines: bool = False) -> io.TextIOWrapper:
    return io.TextIOWrapper(open(fd, mode + "b"), "utf-8", errors, line_buffering=lines)


def runs_here(argv: list[str]) -> bool:
    """Whether this is a call of Python without options: a file, ``-c``, ``-m`` or standard input."""
    if argv[0] not in NAMES:
        return False
    if len(argv) == 1 or argv[1] == "-":
        return True
    return len(argv) > 2 if argv[1] in ("-c", "-m") else not argv[1].startswith("-")


def run(argv: list[str]) -> NoReturn:
    """Runs the program and ends the process as Python would have."""
    _fresh(argv)
    status, interrupted = 1, False
    try:
        try:
            _main(argv)
            status = 0
        except SystemExit as stop:
            status = _status(stop)
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            _show(error)
        try:
            if "threading" in sys.modules:
                sys.modules["threading"]._shutdown()
            atexit._run_exitfuncs()
        except BaseException as error:
            _show(error)
        for stream in (sys.stdout, sys.stderr):
            try:
                if stream is not None and not stream.closed:
                    stream.flush()
            except Exception:
                status = _NOT_FLUSHED
        if interrupted:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        os._exit(status & 0xFF)


def _fresh(argv: list[str]) -> None:
    """Makes the interpreter look as if it had just been started for ``argv``."""
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__ = _streams  # type: ignore[misc]
    kind = argv[1] if len(argv) > 1 else "-"
    match kind:
        case "-c" | "-m":
            sys.argv = [kind, *argv[3:]]
            first = "" if kind == "-c" else os.getcwd()
        case "-":
            sys.argv = argv[1:2] + argv[2:] or [""]
            first = ""
        case _:
            sys.argv = argv[1:]
            first = os.path.dirname(os.path.abspath(kind))
    sys.orig_argv = list(argv)
    gc.enable()
    sys.path.insert(0, first)
    sys.path_importer_cache.clear()
    _forget_shadowed(first or ".")
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=sys.modules["builtins"], __annotations__={})
    sys.modules["__main__"] = main


def _forget_shadowed(folder: str) -> None:
    """Modules of the standard library that a file or folder of the program hides are to be loaded from there."""
    try:
        hiding = {name.removesuffix(".py") for name in os.listdir(folder)}
    except OSError:
        return
    hidden = {name for name in hiding if name in sys.modules and name not in _at_start}
    if hidden:  # to look through all of them touches many pages
        for name in [name for name in sys.modules if name.partition(".")[0] in hidden]:
            del sys.modules[name]


def _main(argv: list[str]) -> None:
    space = sys.modules["__main__"].__dict__
    kind = argv[1] if len(argv) > 1 else "-"
    if kind == "-m":
        sys.argv[0] = "-m"
        import runpy

        runpy._run_module_as_main(argv[2])  # type: ignore[attr-defined]
    elif kind == "-c":
        _execute(argv[2], "<string>", space)
    elif kind == "-":
        _execute(sys.stdin.buffer.read(), "<stdin>", space)
    else:
        path = os.path.abspath(kind)
        try:
            with io.open_code(path) as file:
                source = file.read()
        except OSError as error:
            print(
                f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr
            )
            raise SystemExit(2) from None
        space |= {"__file__": path, "__cached__": None}
        _execute(source, path, space)


def _execute(source: str | bytes, name: str, space: dict[str, object]) -> None:
    exec(compile(source, name, "exec", dont_inherit=True), space)


def _status(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code
    print(stop.code, file=sys.stderr)
    return 1


def _show(error: BaseException) -> None:
    """Prints the traceback as Python does, from the program's first frame on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == _main.__code__.co_filename:
        trace = trace.tb_next
    error.__traceback__ = trace
    try:
        sys.excepthook(type(error), error, trace)
    except BaseException:
        sys.__excepthook__(type(error), error, trace)
