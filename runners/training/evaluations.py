"""What the evaluations of a run say, read back from the entries of metrics.jsonl.

Invariant: a run of one environment is recorded without its name, as it always was; with several, each entry has ``env``
and every figure stands once for each environment.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runners.statistics.intervals import mean

Entry = Mapping[str, Any]


def evaluations_of(folder: Path) -> list[Entry]:
    """The entries of a run folder, those from before it was resumed among them."""
    lines = (folder / "metrics.jsonl").read_text("utf-8").splitlines()
    return [entry for entry in map(json.loads, lines) if entry["kind"] == "evaluation"]


def summary_of(entries: Sequence[Entry], envs: Sequence[str]) -> dict[str, Any]:
    """Success on test tasks before and after, as summary.json holds it: ``start`` and ``final``, each by mode; with
    several environments both of each, below ``envs``."""
    found: dict[str, dict[str, Any]] = {env: {"start": {}, "final": {}} for env in envs}
    for entry in entries:
        if entry["split"] == "test":
            place = "start" if entry["update"] == 0 else "final"
            mine = found[entry.get("env", envs[0])]
            mine[place][entry["mode"]] = {key: entry[key] for key in ("mean", "low", "high")}
    return {"envs": found} if len(envs) > 1 else found[envs[0]]


def by_env(summary: Mapping[str, Any], envs: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """The ``start`` and ``final`` of each environment in a summary."""
    return dict(summary["envs"]) if "envs" in summary else {envs[0]: summary}


def validated(entries: Sequence[Entry]) -> dict[int, float]:
    """Sampled success on validation tasks by update: the mean over the environments."""
    found: dict[int, list[float]] = {}
    for entry in entries:
        if (entry["split"], entry["mode"]) == ("valid", "sampled"):
            found.setdefault(entry["update"], []).append(entry["mean"])
    return {update: mean(values) for update, values in found.items()}
