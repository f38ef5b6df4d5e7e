"""Entries of reasoning-gym's data sets, each made from (data set, seed, number) alone.

Invariant: the same three make the same entry in every process, and no global random state is changed. Some data sets
draw from the global generators of `random` and numpy; these are set from the three beforehand, and put back. Those that
go by the order of a set, another one in each process, are refused.

Imported only where the extra `reasoning-gym` is wanted.
"""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np

from agent_envs.core import SettingsError
from agent_envs.reasoning_gym.admissible import admissible

try:
    import reasoning_gym
    from reasoning_gym.factory import DATASETS as DATASETS
except ImportError as error:
    raise SettingsError("reasoning-gym is not installed: pip install 'turnwise[reasoning-gym]'") from error

BLOCK = 64
"""Entries that one of the library's data sets is opened with; the next ones come from another, with its own seed."""
_NEEDS_MORE = frozenset({"composite"})
"""Data sets that cannot be made from a name."""
UNSTABLE = frozenset({"isomorphic_strings", "knight_swap", "polynomial_multiplication", "ransom_note", "word_ladder"})
"""Data sets whose questions or answers follow from the order of a set, which depends on Python's hash seed."""


def names() -> list[str]:
    """The data sets that can be made from their name, the same everywhere."""
    return sorted(set(DATASETS) - _NEEDS_MORE - UNSTABLE)


def check_stable(dataset: str, where: str) -> None:
    """Raises SettingsError for a data set that another process would make otherwise."""
    if dataset in UNSTABLE:
        raise SettingsError(
            f"{where}: the tasks of {dataset} depend on Python's hash seed, so that no seed makes the same ones again: "
            "choose another data set"
        )


def entry(dataset: str, seed: int, number: int) -> Mapping[str, Any]:
    """The entry of that number: "question", "answer" and "metadata", as the library makes it.

    Raises whatever the library raises.
    """
    block, at = divmod(number, BLOCK)
    with _own_randomness(f"{dataset}-{seed}-{number}"):
        made: Mapping[str, Any] = opened(dataset, seed, block)[at]
        return made


@lru_cache(maxsize=16)
def opened(dataset: str, seed: int, block: int) -> Any:
    """The library's data set of that block. It adds the number of an entry to its seed, so seeds lie a block apart."""
    with _own_randomness(f"{dataset}-{seed}-{block}") as drawn:
        return reasoning_gym.create_dataset(dataset, seed=drawn // (2 * BLOCK) * BLOCK, size=BLOCK)


def digest(question: str) -> str:
    """What a question is recognised by in another process."""
    return blake2b(question.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def score(dataset: str, seed: int, number: int, question: str, answer: str) -> float:
    """What the data set's own scorer gives for an answer; 0 where it must not judge, and for more than full marks.

    Raises ValueError when the entry has another question.

    `question` is the `digest` of the question that was asked: the entry is made again here, and of what a model wrote
    there is only the answer. Some scorers evaluate it: `agent_envs.isolation.grader` calls this in a killable process.
    """
    result = entry(dataset, seed, number)
    if digest(result["question"]) != question:
        raise ValueError(f"entry {number} of {dataset} is another one in this process")
    if not admissible(dataset, answer, result):
        return 0.0
    given = float(opened(dataset, seed, number // BLOCK).score_answer(answer, result))
    return given if given <= 1 else 0.0  # an error below 0 is no small one


@contextmanager
def _own_randomness(purpose: str) -> Iterator[int]:
    """Sets the global generators from `purpose`, and puts them back as they were. The seed is told."""
    seed = int.from_bytes(blake2b(purpose.encode(), digest_size=4).digest(), "big")
    before, before_numpy = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield seed
    finally:
        random.setstate(before)
        np.random.set_state(before_numpy)
