"""Settings and records as plain values, YAML and JSON."""

import dataclasses
import json
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import yaml


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
