"""Runs a program and sends its whole group of processes a signal, as a terminal does, at a named moment.

    python interrupted.py SIGINT MODULE:ATTRIBUTE NTH SECONDS PROGRAM ARGUMENT…

The moment is the NTH call of a function, or for an ATTRIBUTE `import` the import of the module, and SECONDS later.
"""

import importlib
import os
import signal
import sys
import threading
import time
from importlib.abc import MetaPathFinder
from typing import Any


def send(number: int, seconds: float) -> None:
    if seconds:
        threading.Thread(target=lambda: (time.sleep(seconds), os.killpg(0, number)), daemon=True).start()
    else:
        os.killpg(0, number)


class OnImport(MetaPathFinder):
    """Finds nothing; knows when a module is looked for."""

    def __init__(self, module: str, number: int) -> None:
        self.module, self.number = module, number

    def find_spec(self, name: str, *_: Any) -> None:
        if name == self.module:
            sys.meta_path.remove(self)
            send(self.number, 0)


def on_call(module: str, attribute: str, nth: int, number: int, seconds: float) -> None:
    """Replaces the function by itself with the signal before its ``nth`` call."""
    owner: Any = importlib.import_module(module)
    *classes, name = attribute.split(".")
    for each in classes:
        owner = getattr(owner, each)
    real, calls = getattr(owner, name), [0]

    def watched(*arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == nth:
            send(number, seconds)
        return real(*arguments, **options)

    setattr(owner, name, watched)


def main() -> None:
    number, where, nth, seconds = signal.Signals[sys.argv[1]], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    sys.argv = ["turnwise", *sys.argv[5:]]
    module, _, attribute = where.partition(":")
    if attribute == "import":
        sys.meta_path.insert(0, OnImport(module, number))
    else:
        import runners

        runners.check_install()
        on_call(module, attribute, nth, number, seconds)
    from runners.cli import main as program

    program()


if __name__ == "__main__":
    main()
