"""Tasks of the identity environment: sequences of words, each in one split."""

from functools import lru_cache, partial
from random import Random

from agent_envs.core import Task, TaskSet, check_split, number_after
from agent_envs.identity.config import IdentityConfig


def tasks_of(config: IdentityConfig, split: str) -> TaskSet:
    """The tasks of a split."""
    check_split("identity", split)
    words, length = config.words, config.length
    sequences = _sequences(len(words), length)[split]

    def build(index: int) -> Task:
        shown = tuple(words[sequences[index] // len(words) ** at % len(words)] for at in range(length))
        return Task(f"identity-{split}-{index}", split, show(shown[0]), data=shown)

    return TaskSet(len(sequences), build, partial(number_after, f"identity-{split}-"))


def show(word: str) -> str:
    """What the agent reads."""
    return f"word: {word}"


@lru_cache(maxsize=16)
def _sequences(words: int, length: int) -> dict[str, list[int]]:
    """Split → numbers of word sequences; six tenths to train, two each to valid and test, none in two splits."""
    numbers = list(range(words**length))
    Random("identity").shuffle(numbers)
    cut = len(numbers) // 5
    return {"valid": numbers[:cut], "test": numbers[cut : 2 * cut], "train": numbers[2 * cut :]}
