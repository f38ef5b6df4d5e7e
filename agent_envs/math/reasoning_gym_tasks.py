"""Tasks of reasoning-gym's arithmetic and algebra families (extra `reasoning-gym`), scored by their own scorers.

Invariant: a question belongs to the split that its own hash names, and to one task of it. Generating touches no model
text; scoring does, and happens in `agent_envs.reasoning_gym.entries`, a process that can be killed.
"""

import difflib
from collections.abc import Mapping
from typing import Any

from agent_envs.core import SPLITS, SettingsError, Task
from agent_envs.math.config import MathConfig
from agent_envs.math.problem import Problem
from agent_envs.splits import hashed_split

_CATEGORIES = ("arithmetic", "algebra")
_LOOK_AT = 8
"""Questions that are generated for each one that is wanted, before a family counts as exhausted."""


def load(config: MathConfig) -> dict[str, tuple[Task, ...]]:
    """Raises SettingsError for a family that is unknown or of another kind, and where the package is missing."""
    try:
        from agent_envs.reasoning_gym.entries import DATASETS, check_stable, digest, entry
    except SettingsError as error:
        raise SettingsError(f"--math.source {config.source}: {error}") from error
    family = config.source.partition(":")[2]
    check_stable(family, "math")
    _check(family, DATASETS)
    room = {split: config.train_tasks if split == "train" else config.held_out_tasks for split in SPLITS}
    tasks: dict[str, list[Task]] = {split: [] for split in SPLITS}
    seen: set[str] = set()
    for number in range(_LOOK_AT * sum(room.values())):
        if all(len(tasks[split]) == room[split] for split in SPLITS):
            break
        made = entry(family, config.seed, number)
        question, gold = str(made["question"]).strip(), str(made["answer"]).strip()
        split = hashed_split(question)
        if question in seen or len(tasks[split]) == room[split]:
            continue
        seen.add(question)
        problem = Problem(gold, scorer=(family, config.seed, number, digest(made["question"])))
        tasks[split].append(Task(f"math-{split}-{len(tasks[split])}", split, question, "en", 1, problem))
    return {split: tuple(result) for split, result in tasks.items()}


def _check(family: str, known: Mapping[str, tuple[Any, ...]]) -> None:
    ours = sorted(name for name, (made, *_) in known.items() if made.__module__.split(".")[1] in _CATEGORIES)
    if family in ours:
        return
    if family in known:
        raise SettingsError(f"math: {family} is not an arithmetic or algebra family (those are: {', '.join(ours)})")
    close = difflib.get_close_matches(family, ours, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise SettingsError(f"math: reasoning-gym has no family {family!r}{hint} (known: {', '.join(ours)})")
