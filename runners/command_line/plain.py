"""Settings and records as plain values, YAML and JSON."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import yaml

MOST_TEXT = 10_000_000
"""Characters of a settings file."""


def plain(settings: Any) -> Any:
    """Settings as plain values for a file."""
    if dataclasses.is_dataclass(settings) and not isinstance(settings, type):
        return {f.name: plain(getattr(settings, f.name)) for f in dataclasses.fields(settings)}
    if isinstance(settings, Mapping):
        return {str(k): plain(v) for k, v in settings.items()}
    if isinstance(settings, Enum):
        return settings.value
    if isinstance(settings, Path):
        return str(settings)
    if isinstance(settings, (list, tuple)):
        return [plain(v) for v in settings]
    return settings


def dump(top: Any, parts: Mapping[str, Any]) -> str:
    """The resolved settings as YAML that ``--config`` reads back."""
    return yaml.safe_dump({**plain(top), **plain(parts)}, sort_keys=False, allow_unicode=True)


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """``name old -> new`` for every value that two nested mappings of plain values do not share."""
    for key in dict.fromkeys((*old, *new)):
        a, b = old.get(key), new.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            yield from differences(a, b, f"{prefix}{key}.")
        elif a != b:
            yield f"{prefix}{key} {a} -> {b}"


def without_place(name: str) -> str:
    """Of a local path its last part, for where it lies is nobody's business; every other name as it is."""
    path = Path(name)
    return path.name if path.is_absolute() else name


class _Strict(yaml.SafeLoader):
    """Nine lines of YAML with aliases of aliases stand for a billion values; of a name twice, one has no effect."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "aliases (*name) are not read: write the value out", None)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [name.value for name, _ in node.value if isinstance(name, yaml.ScalarNode)]
        if twice := [name for name in names if names.count(name) > 1]:
            raise yaml.constructor.ConstructorError(None, None, f"{twice[0]} is named twice", node.start_mark)
        return super().construct_mapping(node, deep)


def load_yaml(text: str) -> Any:
    """Plain values from YAML. Raises ValueError, for aliases, a name twice and endless nesting too."""
    try:
        return yaml.load(text, Loader=_Strict)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except (AttributeError, LookupError, TypeError):  # a tag that its value does not fit
        raise ValueError("a value is not what its tag says") from None
    except yaml.MarkedYAMLError as error:
        line = f" (line {error.problem_mark.line + 1})" if error.problem_mark else ""
        raise ValueError(f"{error.problem or error.context}{line}") from None
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


def read_text(file: Path) -> str:
    """The text of a settings file. Raises OSError, and ValueError for one that is no UTF-8 or does not end."""
    with file.open(encoding="utf-8") as stream:
        text = stream.read(MOST_TEXT + 1)
    if len(text) > MOST_TEXT:
        raise ValueError(f"it is longer than {MOST_TEXT:,} characters")
    return text


def dump_json(value: Any, indent: int | None = 1) -> str:
    """JSON with a stable layout; infinities and NaN become null."""
    return json.dumps(finite(plain(value)), ensure_ascii=False, indent=indent) + "\n"


def finite(value: Any) -> Any:
    """Plain values with infinities and NaN as None."""
    if isinstance(value, float) and not (abs(value) < float("inf")):
        return None
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    return value
