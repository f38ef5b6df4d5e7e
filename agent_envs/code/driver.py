"""Runs in the sandbox beside a submission: evaluates expressions and tells the host what they gave, as plain data.

It knows no expected value, so nothing that a submission finds or changes here can tell it one. This text is run by
`python -c`, with a call of `main` below it; it is never imported into the sandbox.

What it says of a case is one line, ``TOKEN NUMBER SAID``. ``SAID`` begins with ``=`` (the value, in the JSON that
`agent_envs.code.values` reads), ``?`` (why the value is no plain data) or ``!`` (what was raised). The token only
keeps apart what the submission prints; one who finds it can claim values, as any submission can by returning them.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Functions below look names up in this copy: what a submission does to its builtins ends there.
globals()["__builtins__"] = dict(vars(sys.modules["builtins"]))

_write, _exit, _modules, _encode = os.write, os._exit, sys.modules, str.encode
MOST = 1 << 16
"""Characters of a value."""
DEEP = 50
_SAID = 300
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


def forget(folder: str) -> None:
    """Every case loads the submission anew, so that none sees what another one left in it."""
    for name, module in list(_modules.items()):
        try:
            file = module.__dict__.get("__file__")
            if type(file) is str and file.startswith(folder):
                del _modules[name]
        except Exception:
            continue


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


def main(token: str, seconds: float, patience: float, total: int, cases: list[tuple[int, str, str]]) -> None:
    """Evaluates (number, module, expression) in order; the process ends by a signal where one takes too long.

    ``seconds`` of computing or ``patience`` of waiting for each, ``total`` seconds of computing for all together.
    """
    sys.path[:] = [path for path in sys.path if path]
    import _signal  # type: ignore[import-not-found]
    import resource

    del _modules["resource"]  # a submission may have a file of that name
    clock = _signal.setitimer
    folder = os.getcwd() + "/"
    sys.path.insert(0, folder[:-1])
    resource.setrlimit(resource.RLIMIT_CPU, (total, total))
    channel, nothing = os.dup(1), os.open("/dev/null", os.O_RDWR)
    for stream in (1, 2):
        os.dup2(nothing, stream)
    for number, module, expression in cases:
        forget(folder)
        clock(_signal.ITIMER_PROF, seconds)
        clock(_signal.ITIMER_REAL, patience)
        text = said(module, expression)
        clock(_signal.ITIMER_PROF, 0)
        clock(_signal.ITIMER_REAL, 0)
        rest = _encode(f"\n{token} {number} {text}\n")
        while rest:
            rest = rest[_write(channel, rest) :]
    _exit(0)
