"""The program that runs in the sandbox for `trial`: calls changed references and prints which checks fail. Never
imported by the host.

Invariant: every call ends: after a set number of lines of Python, or with the run.

Reads JSON from standard input: ``versions`` (each a list of [module, text], those that others import first), ``cases``
([expression, the value it should give, as Python writes it]) and ``budget`` (lines that one call may execute). Prints a
word for each version, with a letter for each case: ``=`` right, ``x`` another value, ``!`` an error, ``t`` no end.
"""

import json
import sys
from types import FrameType, ModuleType
from typing import Any


class NoEnd(BaseException):
    pass


def limited(budget: int) -> Any:
    left = [budget]

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise NoEnd
        return trace

    return trace


def called(expression: str, expected: str, space: dict[str, Any], budget: int) -> str:
    sys.settrace(limited(budget))
    try:
        value = eval(expression, space)
        sys.settrace(None)
        return "=" if value == eval(expected) else "x"
    except NoEnd:
        return "t"
    except Exception:
        return "!"
    finally:
        sys.settrace(None)


def main() -> None:
    job = json.load(sys.stdin)
    for version in job["versions"]:
        space: dict[str, Any] = {}
        for name, text in version:
            module = sys.modules[name] = ModuleType(name)
            exec(compile(text, name, "exec"), module.__dict__)
            space = module.__dict__
        print("".join(called(case, expected, space, job["budget"]) for case, expected in job["cases"]), flush=True)


if __name__ == "__main__":
    main()
