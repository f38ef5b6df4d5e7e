"""Settings of the wiki environment. Every field is a command-line flag; its docstring is the flag's help."""

from dataclasses import dataclass
from enum import StrEnum

from agent_envs.core import SettingsError
from agent_envs.ranges import check_ranges, check_share

LANGUAGES = ("en", "zh")


class Corpus(StrEnum):
    """Where pages and questions come from."""

    WORLD = "world"
    GEO = "geo"


class OutcomeScore(StrEnum):
    """How a submitted answer is scored."""

    EXACT = "exact"
    F1 = "f1"
    HIERARCHICAL = "hierarchical"


@dataclass(frozen=True)
class WikiConfig:
    """Settings of the wiki environment."""

    corpus: Corpus = Corpus.WORLD
    """`world`: seeded fictional worlds; `geo`: facts of the real world (needs the extra `geo`)."""
    seed: int = 0
    """Seed of the corpus and its questions (episodes have their own seeds)."""
    train_worlds: int = 400
    """Fictional worlds to train on; their entities have names that occur in no other split."""
    valid_worlds: int = 40
    """Fictional worlds for choosing settings."""
    test_worlds: int = 120
    """Fictional worlds for reporting."""
    pages: int = 40
    """Linked pages in each world and language (20 to 150)."""
    questions: int = 20
    """Questions per world and language."""
    min_hops: int = 1
    """Fewest links and facts a question chains."""
    max_hops: int = 4
    """Most links and facts a question chains (at most 4)."""
    languages: tuple[str, ...] = LANGUAGES
    """Languages of the tasks: en, zh or both."""
    max_turns: int = 10
    """Turns after which an unfinished episode is truncated."""
    max_lines: int = 40
    """Most lines of a page shown at once."""
    max_chars: int = 4000
    """Most characters of a page shown at once; a page is cut at line ends."""
    hits: int = 5
    """Search results and similar titles shown at once."""
    outcome: OutcomeScore = OutcomeScore.EXACT
    """Score of the submitted answer: exact match over all accepted forms, F1 (words; characters for Chinese), or ARPO's
    hierarchical reward: -1 where a turn could not be read or there is no answer, else F1, and with a python tool 0.1
    more for a right answer if that and the wiki were used. Its reason is told in the last info."""
    evidence: float = 0.0
    """Share of the reward (0 to 1) that the saved lines earn by their F-beta against the gold lines."""
    evidence_beta: float = 0.5
    """Beta of that F; below 1 saving too much costs more than saving too little."""
    invalid_penalty: float = 0.0
    """Taken from the reward at every invalid action."""
    skill: float = 0.8
    """Chance that the agent of whom the oracle speaks makes the expert's next turn; its other turns change nothing."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            SettingsError,
            "wiki: ",
            train_worlds=(0, 1_000_000),
            valid_worlds=(0, 1_000_000),
            test_worlds=(0, 1_000_000),
            pages=(20, 150),
            questions=(1, 200),
            min_hops=(1, self.max_hops),
            max_hops=(1, 4),
            max_turns=(1, 10_000),
            max_lines=(1, 100_000),
            max_chars=(1, 10_000_000),
            hits=(1, 50),
            evidence=(0, 1),
            evidence_beta=(0.01, 100),
            invalid_penalty=(0, 100),
        )
        check_share(self, SettingsError, "wiki: ", "skill")
        if self.outcome is OutcomeScore.HIERARCHICAL and (self.evidence or self.invalid_penalty):
            raise SettingsError("wiki: evidence and invalid_penalty do not act with outcome hierarchical: leave them 0")
        if not self.languages or set(self.languages) - set(LANGUAGES) or len(set(self.languages)) < len(self.languages):
            raise SettingsError(
                f"wiki: languages must be distinct ones of {', '.join(LANGUAGES)}, not {self.languages}"
            )
