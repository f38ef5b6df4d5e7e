"""Named parts, ours and those of outside packages: environments, agents, algorithms, engines and judges.

Invariant: nothing is imported before its name is asked for; an outside part never replaces one of ours; whatever is
wrong with one is said in one line, and never keeps the others from being listed.
"""

import difflib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Listed:
    """One line of a listing."""

    name: str
    origin: str
    """The package that it comes from; empty for ours."""
    description: str
    """First sentence of its docstring."""
    error: str = ""
    """Why it cannot be used."""
    missing: str = ""
    """The extra that it needs and that is not installed."""


@dataclass(frozen=True)
class Registry(Generic[T]):
    """Parts of one kind by name. ``get`` raises ``error`` with one line."""

    kind: str
    """What the parts are: "engine"."""
    group: str
    """Entry-point group by which other packages add theirs: ``name = "module:attribute"``."""
    builtin: Mapping[str, str]
    """Our own: name to "module:attribute"."""
    check: Callable[[Any, str], None] = lambda part, who: None
    """Raises ValueError, naming ``who``, where a loaded part of another package cannot be used."""
    error: type[Exception] = field(default=ValueError)

    def outside(self) -> dict[str, EntryPoint]:
        """Parts of other packages by name, those that cannot be used included."""
        return {point.name: point for point in installed(self.group)}

    def names(self) -> list[str]:
        return sorted({*self.builtin, *self.outside()})

    def get(self, name: str) -> T:
        """The part called ``name``. Raises ``error`` when it is unknown, broken, or has a name that is taken."""
        outside = self.outside()
        if name in self.builtin:
            if name in outside:
                raise self.error(f"{self._who(outside[name])} has the name of a built-in {self.kind}: rename it")
            module, _, attribute = self.builtin[name].partition(":")
            ours: T = getattr(import_module(module), attribute)
            return ours
        if name not in outside:
            close = difflib.get_close_matches(name.lower(), self.names(), n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise self.error(f"unknown {self.kind} {name!r}; there are {', '.join(self.names())}{hint}")
        who = self._who(outside[name])
        try:
            part: T = outside[name].load()
        except (Exception, SystemExit) as error:  # another package's module may do anything while it is imported
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise self.error(f"{who} cannot be imported ({reason}): fix or uninstall it") from error
        try:
            self.check(part, who)
        except ValueError as error:
            raise self.error(str(error)) from None
        return part

    def listing(self) -> Iterator[Listed]:
        """All parts, ours first."""
        outside = self.outside()
        for name in [*sorted(self.builtin), *sorted(outside.keys() - self.builtin.keys())]:
            origin = _package(outside[name]) if name in outside else ""
            try:
                part = self.get(name)
                yield Listed(name, origin, first_sentence(part), missing=missing_extra(part))
            except Exception as error:  # a listing shows what is broken
                yield Listed(name, origin, "", " ".join(str(error).split()))

    def _who(self, point: EntryPoint) -> str:
        package = _package(point)
        return f"{self.kind} {point.name!r} ({point.value}{f' of the package {package}' if package else ''})"


def installed(group: str) -> Iterable[EntryPoint]:
    """The entry points of a group, of all packages that Python finds now."""
    found: Iterable[EntryPoint] = _read(tuple((folder, _changed(folder)) for folder in sys.path)).select(group=group)
    return found


@lru_cache(maxsize=1)
def _read(path: tuple[tuple[str, int], ...]) -> Any:
    """Those of all groups, which Python 3.11 gives in another type than later ones.

    To read a hundred packages takes 20 ms, and a run asks dozens of times.
    """
    return entry_points()


def _changed(folder: str) -> int:
    """When something was last put into a folder, or taken out of it; 0 where there is none."""
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return 0


def missing_extra(part: object) -> str:
    """Says that a part is not installed whose ``extra`` names an extra of ours and the package that this installs."""
    extra = getattr(part, "extra", None)
    return "" if extra is None or find_spec(extra) else f"not installed: pip install 'turnwise[{extra}]'"


def check_settings(config: Any, who: str) -> None:
    """Raises ValueError unless ``config`` is a frozen dataclass whose fields all have defaults."""
    if not (isinstance(config, type) and is_dataclass(config) and vars(config)["__dataclass_params__"].frozen):
        raise ValueError(f"{who} has no Config that is a frozen dataclass")
    check_defaults(config, who)


def check_defaults(config: type, who: str) -> None:
    """Raises ValueError unless every field of the dataclass ``config`` has a default."""
    for setting in fields(config):
        if setting.init and setting.default is MISSING and setting.default_factory is MISSING:
            raise ValueError(f"{who} has no default for {setting.name}: every setting needs one")


def first_sentence(part: object) -> str:
    """The first sentence of a docstring; of a class without one of its own, nothing."""
    text = " ".join((vars(part).get("__doc__") or "").split()) if isinstance(part, type) else str(part.__doc__ or "")
    return " ".join(text.split()).split(". ")[0].rstrip(".")


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else ""
