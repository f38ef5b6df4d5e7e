"""Settings of the wiki environment. Every field is a command-line flag; its docstring is the flag's help."""

from dataclasses import dataclass
from enum import StrEnum

from agent_envs.core import SettingsError
from agent_envs.ranges import check_ranges, check_share
from agent_envs.wiki.places import Backend, Place

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
class WikiConfig(Place):
    """Settings of the wiki environment."""

    corpus: Corpus = Corpus.WORLD
    """`world`: seeded fictional worlds; `geo`: facts of the real world (needs the extra `geo`)."""
    source: str = ""
    """File of questions, one JSON object a line, to ask about a live wiki, a file of Kiwix or `geo` (docs/wiki.md).
    Empty: questions are made."""
    crawl: int = 0
    """Most pages to read, once, to make questions of what they state and link to: for a live wiki, a file of Kiwix or
    `geo` that nobody wrote questions about (docs/wiki.md). 0: none."""
    starts: tuple[str, ...] = ()
    """Titles of pages that `crawl` begins at, to go on along links. Empty: pages are drawn by `seed`."""
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
    """Questions per world and language; with `crawl`, most questions that begin at one page."""
    min_hops: int = 1
    """Fewest links and facts a question chains."""
    max_hops: int = 4
    """Most links and facts a question chains (at most 4)."""
    languages: tuple[str, ...] = ("en",)
    """Languages of the tasks: en, zh or both (`en zh`)."""
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
    more for a right answer if that and the wiki were used. The last info names the reason."""
    evidence: float = 0.0
    """Share of the reward (0 to 1) that the saved lines earn by their F-beta against the gold lines."""
    evidence_beta: float = 0.5
    """Beta of that F; below 1 saving too much costs more than saving too little."""
    invalid_penalty: float = 0.0
    """Taken from the reward at every invalid action."""
    skill: float = 0.8
    """Skill of the oracle's agent: the chance that it makes the expert's next turn; its other turns change nothing."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            SettingsError,
            "wiki: ",
            crawl=(0, 100_000),
            train_worlds=(0, 1_000_000),
            valid_worlds=(0, 1_000_000),
            test_worlds=(0, 1_000_000),
            pages=(20, 150),
            questions=(1, 200),
            max_hops=(1, 4),
            min_hops=(1, self.max_hops),
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
        self.check_place()
        worlds = (self.train_worlds, self.valid_worlds, self.test_worlds)
        offline = self.backend == Backend.OFFLINE and self.corpus == Corpus.WORLD and not self.replay
        if offline and (self.source or self.crawl):
            raise SettingsError(
                f"wiki: {'a source asks' if self.source else 'a crawl makes questions'} about a real wiki: set backend "
                "live or zim, or corpus geo"
            )
        if self.source and self.evidence:
            raise SettingsError("wiki: questions of a source have no gold lines: leave evidence 0")
        self._check_crawl()
        made = self.corpus == Corpus.WORLD and not self.source and not self.crawl
        if self.backend != Backend.OFFLINE and made and max(worlds) > 1:
            raise SettingsError(
                "wiki: questions about a wiki that is not offline come from a source, or it holds one world of each "
                "split, whose names do not repeat: set train_worlds, valid_worlds and test_worlds to 1 or 0"
            )
        if not self.languages or set(self.languages) - set(LANGUAGES) or len(set(self.languages)) < len(self.languages):
            raise SettingsError(
                f"wiki: languages must be distinct ones of {', '.join(LANGUAGES)}, not {self.languages}"
            )

    def _check_crawl(self) -> None:
        if self.starts and not self.crawl:
            raise SettingsError("wiki: starts are where a crawl begins: set crawl, or leave them out")
        if self.source and self.crawl:
            raise SettingsError("wiki: questions come from a source or from a crawl: leave out one of them")
        for name in ("train_worlds", "valid_worlds", "test_worlds", "pages") if self.crawl else ():
            if getattr(self, name) != getattr(WikiConfig, name):
                raise SettingsError(f"wiki: {name} does not act with crawl, whose questions come from the wiki's pages")
