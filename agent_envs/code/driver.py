"""The program that runs in the sandbox next to a submission: evaluates expressions and reports their values as plain
data.

It knows no expected value, so nothing that a submission finds or changes here can tell it one. This text is run by
`python -c`, with a call of `main` below it; it is never imported into the sandbox.

Each case has a process of its own, forked from one in which nothing of the submission ran and which none can look into.
What it leaves running is killed, and after one that started a process or changed a file the rest is evaluated in
another run. Where the host found that the submission cannot leave anything behind but its own modules, these are loaded
anew instead. What is told is a line
``TOKEN NUMBER SAID``, and ``SAID`` begins with ``=`` (the value, in the JSON that `agent_envs.code.values` reads),
``?`` (why the value is no plain data), ``!`` (what was raised) or ``.`` (how the process ended). The token only keeps
apart what the submission prints; one who finds it can claim a value, as any submission can by returning it.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Functions below look names up in this copy: what a submission does to its builtins ends there.
globals()["__builtins__"] = dict(vars(sys.modules["builtins"]))

_write, _exit, _modules, _encode = os.write, os._exit, sys.modules, str.encode
_this = sys.modules["__main__"]  # which would lose its names with its last user
MOST = 1 << 16
"""Characters of a value."""
DEEP = 50
READY = b"ready"
"""What is said before anything of the submission runs: without it, what follows is not the submission's doing."""
AGAIN = b"again"
"""What is said where a case left something behind: the rest is to be asked in a run of its own."""
_SAID = 300
_SLACK = 0.1
"""Seconds of computing beyond a case's own that its clock, which ticks, may let pass."""
_NESTED: "list[tuple[str, Any]]" = [("l", list), ("t", tuple), ("S", set), ("S", frozenset), ("d", dict)]


class NotPlain(Exception):  # noqa: N818
    pass


def plain(value: "Any", depth: int, room: list[int]) -> str:
    """JSON of a value, made without asking the value: of an object of a subclass, what the plain type holds counts."""
    kind = type(value)
    if value is None or kind is bool:
        text = {None: "null", True: "true", False: "false"}[value]
    elif issubclass(kind, int):
        number = int.__index__(value)
        text = f'["i","{number:x}"]' if number.bit_length() < 4 * MOST else too_large()
    elif issubclass(kind, float):
        text = f'["f","{float.hex(value)}"]'
    elif issubclass(kind, complex):
        real, imaginary = complex.__getnewargs__(value)  # type: ignore[attr-defined]
        text = f'["c","{float.hex(real)}","{float.hex(imaginary)}"]'
    elif issubclass(kind, str):
        short = str.__len__(value) < MOST
        text = f'["s","{_encode(value, "utf-8", "surrogatepass").hex()}"]' if short else too_large()
    elif issubclass(kind, bytes):
        text = f'["b","{bytes.hex(value)}"]' if bytes.__len__(value) < MOST else too_large()
    elif depth >= DEEP:
        raise NotPlain("a value nested too deeply")
    else:
        found = [pair for pair in _NESTED if issubclass(kind, pair[1])]
        if not found:
            raise NotPlain(f"no plain value: {str(kind.__name__)[:60]}")
        name, base = found[0]
        items = base.__iter__(value) if name != "d" else (part for pair in dict.items(value) for part in pair)
        parts = [plain(item, depth + 1, room) for item in items]
        text = f'["{name}",[{",".join(parts)}]]'
        room[0] += sum(map(len, parts))
    room[0] -= len(text)
    return text if room[0] >= 0 else too_large()


def too_large() -> str:
    raise NotPlain("a value too large")


def said(module: str, expression: str) -> str:
    try:
        __import__(module)
        space = _modules[module].__dict__
        return "=" + plain(eval(compile(expression, "<check>", "eval"), space), 0, [MOST])
    except NotPlain as reason:
        return "?" + _hex(str(reason))
    except BaseException as error:
        name = type(error).__name__
        try:
            return "!" + _hex(f"{name}: {str(error)[:_SAID]}")
        except BaseException:
            return "!" + _hex(name)


def _hex(text: str) -> str:
    return _encode(text[:_SAID], "utf-8", "surrogatepass").hex()


def bounded(most: int) -> "Callable[[float, float], None]":
    """Bounds the computing of this process; gives what sets the clocks of the next case, whose signals end it."""
    import _signal  # type: ignore[import-not-found]
    import resource

    del _modules["resource"]  # a submission may have a file of that name
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (most, most))  # where the signals are not heard
    sys.path.insert(0, os.getcwd())

    def clocks(seconds: float, patience: float) -> None:
        _signal.setitimer(_signal.ITIMER_PROF, seconds)
        _signal.setitimer(_signal.ITIMER_REAL, patience)

    return clocks


def tell(channel: int, *words: bytes) -> None:
    rest = b"\n" + b" ".join(words) + b"\n"
    while rest:
        rest = rest[_write(channel, rest) :]


def forget(folder: str) -> None:
    """Has the submission loaded anew."""
    for name, module in list(_modules.items()):
        file = getattr(module, "__file__", None)
        if type(file) is str and file.startswith(folder):
            del _modules[name]


def remains(folders: list[str]) -> "list[tuple[object, ...]]":
    """What lies in the folders, as only the system can write it: a case that changed anything changed this.

    Contents are a part of it: what is written through a mapping changes no time.
    """
    found: list[tuple[object, ...]] = []
    for folder in folders:
        for where, names, files in os.walk(folder):
            for name in (".", *names, *files):
                path = where + "/" + name
                status = os.lstat(path)
                small = name in files and (status.st_mode >> 12) == 0o10 and status.st_size <= MOST
                found.append(
                    (path, status.st_ino, status.st_mode, status.st_ctime_ns, status.st_size, small and _read(path))
                )
    return found


def _read(path: str) -> bytes:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return b""
    try:
        return os.read(file, MOST)
    finally:
        os.close(file)


def unseen() -> "Callable[[], object]":
    """Lets no other process look into this one and its forks; gives what takes that back."""
    known = set(_modules)
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    for name in set(_modules) - known:  # a submission may have a file of that name
        del _modules[name]
    prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
    return lambda: prctl(4, 1, 0, 0, 0)


def end_all() -> bool:
    """Kills whatever a case started and left running, whatever its group or session; whether there was anything."""
    try:
        os.kill(-1, 9)
    except OSError:
        return False
    return True


def heard(token: bytes, pid: int, pipe: int, seconds: float, patience: float) -> bytes:
    """What a process said of its case, or how it ended without a word. Its computing is measured here."""
    import select

    poller = select.poll()
    poller.register(pipe, select.POLLIN)
    output, begin = b"", b"\n" + token + b" "
    while poller.poll(patience * 1000) and (data := os.read(pipe, 1 << 16)):
        output = (output + data)[-4 * MOST :]
        if output.endswith(b"\n") and begin in output:
            break
    os.close(pipe)
    for end in (os.kill, os.killpg):
        try:  # noqa: SIM105 (a module that is imported here would hide a file of the submission)
            end(pid, 9)
        except OSError:
            pass
    _, status, used = os.wait4(pid, 0)
    if used.ru_utime + used.ru_stime > seconds + _SLACK:  # it switched its own clock off
        return b".-27"
    code = os.waitstatus_to_exitcode(status)
    said, ended, _ = output[output.rfind(begin) + len(begin) :].partition(b"\n")
    return said if begin in output and ended else b".%d" % code


def alone(sink: int, seen: "Callable[[], object] | None") -> None:
    """Leaves this process nothing that it has in common with the one it is a fork of, but the ``sink``."""
    os.closerange(3, sink)
    os.closerange(sink + 1, 64)  # of the driver's there are fewer
    for stream in (0, 1, 2):  # of a file that is open for both, either one sees what marks the other one set
        os.dup2(os.open("/dev/null", os.O_RDWR), stream)
    os.closerange(3, sink)
    if seen is not None:
        seen()
    os.setpgid(0, 0)


def main(
    token: bytes, seconds: float, patience: float, cases: list[tuple[int, str, str]], apart: bool, walled: bool
) -> None:
    """Evaluates (number, module, expression) in order, each in a process of its own where they are kept ``apart``.

    ``seconds`` of computing or ``patience`` of waiting for each. ``walled``: every process in sight is the run's own.
    """
    sys.path[:] = [path for path in sys.path if path]
    _modules["__main__"] = type(sys)("__main__")
    channel, nothing = os.dup(1), os.open("/dev/null", os.O_RDWR)
    for stream in (1, 2):
        os.dup2(nothing, stream)
    clocks = None if apart else bounded(int(seconds * len(cases)) + 2)
    tell(channel, token, READY)
    seen = unseen() if apart else None
    folders = [os.getcwd(), os.environ["TMPDIR"], "/dev/shm"] if apart and walled else []
    before, last = remains(folders), 0
    for number, module, expression in cases:
        if clocks is not None:
            forget(os.getcwd() + "/")
            clocks(seconds, patience)
            text = _encode(said(module, expression))
            clocks(0, 0)
            tell(channel, token, b"%d" % number, text)
            continue
        pipe, sink = os.pipe()
        pid = os.fork()
        started = walled and last and (pid or os.getpid()) != last + 1  # the system counts what is started
        if pid == 0:
            if not started:
                alone(sink, seen)
                bounded(int(seconds) + 2)(seconds, patience)
                tell(sink, token, _encode(said(module, expression)))
            _exit(0)
        os.close(sink)
        if not started:
            tell(channel, token, b"%d" % number, heard(token, pid, pipe, seconds, patience + 1))
            last = pid
        if started or (walled and (end_all() or remains(folders) != before)):
            tell(channel, token, AGAIN)
            break
    _exit(0)
