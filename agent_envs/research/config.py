"""Settings of the research environment. Every field is a command-line flag; its docstring is the flag's help."""

from dataclasses import dataclass
from enum import StrEnum

from agent_envs.code.python_tool import PythonSettings
from agent_envs.core import SettingsError
from agent_envs.ranges import check_ranges
from agent_envs.wiki.config import Corpus, OutcomeScore, WikiConfig


class Format(StrEnum):
    """How an action is written."""

    USUAL = "usual"
    TAGS = "tags"


@dataclass(frozen=True)
class ResearchConfig(PythonSettings, WikiConfig):
    """Settings of the research environment."""

    format: Format = Format.USUAL
    """`usual`: the actions of `wiki_python`; `tags`: ARPO's `<search>`, `<python>` and `<answer>` with `\\boxed{}`, and
    results in `<result>`. A search then opens the best page."""
    both: float = 1.0
    """Share of the questions that need both tools; the others are the wiki's own."""
    facts: int = 1
    """Most facts that a computation starts from or adds (1 or 2)."""
    min_operations: int = 1
    """Fewest operations with a given number, the first of which is a product or a remainder."""
    max_operations: int = 2
    """Most operations with a given number (at most 4)."""
    pages: int = 20
    """Linked pages in each world and language (20 to 150)."""
    max_hops: int = 2
    """Most links and facts a question chains to a number (at most 4)."""
    outcome: OutcomeScore = OutcomeScore.HIERARCHICAL
    """Score of the submitted answer: exact match over all accepted forms, F1 (words; characters for Chinese), or ARPO's
    hierarchical reward: -1 where a turn could not be read or there is no answer, else F1, and 0.1 more for a right
    answer if search and python were used. The last info names the reason."""

    def __post_init__(self) -> None:
        if self.crawl:
            raise SettingsError("research: questions are made about fictional worlds, or come from a source: no crawl")
        super().__post_init__()
        check_ranges(
            self,
            SettingsError,
            "research: ",
            both=(0, 1),
            facts=(1, 2),
            max_operations=(1, 4),
            min_operations=(1, self.max_operations),
        )
        if self.format is Format.TAGS and (self.evidence or self.invalid_penalty):
            raise SettingsError("research: evidence and invalid_penalty do not act with format tags: leave them 0")
        if self.corpus == Corpus.GEO and not self.source:
            raise SettingsError("research: corpus geo needs a source: questions are made about fictional worlds only")
        shaping = ("both", "facts", "min_operations", "max_operations")
        if self.source and (odd := [n for n in shaping if getattr(self, n) != getattr(ResearchConfig, n)]):
            raise SettingsError(f"research: {odd[0]} shapes the questions that are made: leave it out with a source")
