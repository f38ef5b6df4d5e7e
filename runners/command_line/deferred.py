"""Heavy libraries that are loaded when an attribute of theirs is first read, not when they are imported.

A command line is understood before anything is computed: ``--help`` and a wrong flag answer without torch. Modules that
hold settings or formulas may say ``import torch`` at their top, as long as they read nothing of it while they are
imported themselves. (`importlib.util.LazyLoader` cannot do this: the import statement itself reads ``__spec__``.)
"""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from types import ModuleType
from typing import Any

from runners.command_line.interrupts import importing

HEAVY = ("torch", "transformers", "peft", "matplotlib", "tantivy")
_LOCK = RLock()


class Deferred(ModuleType):
    """Stands in for a library. The first attribute that is read loads it; from then on both have the same contents."""

    def __getattr__(self, name: str) -> Any:
        with _LOCK:
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
                with importing():
                    real = importlib.import_module(self.__name__)
                self.__dict__.update(real.__dict__)
        return getattr(sys.modules[self.__name__], name)


def install() -> None:
    """Defers those of `HEAVY` that are installed and were not imported yet."""
    for name in HEAVY:
        spec = None if name in sys.modules else importlib.util.find_spec(name)
        if spec is not None:
            deferred = Deferred(name)
            deferred.__spec__, deferred.__file__ = spec, spec.origin
            sys.modules[name] = deferred


@contextmanager
def hidden() -> Iterator[None]:
    """Inside, libraries that are still deferred count as not imported: some code looks for them in ``sys.modules``."""
    deferred = {name: module for name, module in sys.modules.items() if isinstance(module, Deferred)}
    for name in deferred:
        del sys.modules[name]
    try:
        yield
    finally:
        for name, module in deferred.items():
            sys.modules.setdefault(name, module)
