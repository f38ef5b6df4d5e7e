"""Tree of thought: several actions for every state, of which the most promising go on.

Invariant: every sampled action stays in the tree, also one that was given up at once; identical siblings are one node
with a count. The actions of a state are drawn from the policy whatever was drawn before, and what is chosen only
decides where more are drawn, so a mean over the actions tried in a state is unbiased, and the whole search is one
training sample. With one action for every state the tree is the chain of ReAct, token for token.
"""

from dataclasses import dataclass
from enum import StrEnum

from agent_envs.ranges import check_ranges


class Strategy(StrEnum):
    """In which order states are expanded."""

    BFS = "bfs"
    """Depth by depth: of all that was reached in one step the best ``beam`` states go on."""
    BEST_FIRST = "best_first"
    """The best ``beam`` of all states that are not expanded yet, wherever they are."""
    PUCT = "puct"
    """One at a time: down from the root to the best mean value plus explore P sqrt(N) / (1 + n) [AlphaZero]."""


class Rank(StrEnum):
    """What finished paths are compared by."""

    RETURN = "return"
    """What they were paid, where the environment tells an agent so (a solved puzzle): success ends the search."""
    SCORE = "score"
    """The scorer, where the environment gives no verdict: for ``value`` V after the answer. Rewards are ignored."""


@dataclass(frozen=True)
class ToTSettings:
    """How a task is searched."""

    branch: int = 4
    """Actions sampled in every expanded state; identical ones become one child with a count. 1: ReAct."""
    search: Strategy = Strategy.BFS
    """Which states are expanded: bfs, best_first or puct."""
    beam: int = 2
    """States that are expanded before their children are scored; for bfs, those that go on at each depth."""
    nodes: int = 0
    """Budget of sampled actions; 0: none. A state that would exceed it is not expanded."""
    tokens: int = 0
    """Budget of sampled tokens; 0: none. Once it is reached nothing more is expanded."""
    seconds: float = 0.0
    """Time after which nothing more is expanded; 0: none. Not reproducible, and refused in training."""
    rank: Rank = Rank.RETURN
    """Finished paths are compared by return or by score."""
    explore: float = 1.0
    """Exploration weight of puct, in units of the score."""

    def __post_init__(self) -> None:
        check_ranges(self, branch=1, beam=1, nodes=0, tokens=0, seconds=0, explore=0)
        for name, kind in (("search", Strategy), ("rank", Rank)):
            if getattr(self, name) not in list(kind):
                raise ValueError(f"{name} must be one of {', '.join(kind)}, not {getattr(self, name)!r}")
        if 0 < self.nodes < self.branch:
            raise ValueError(f"nodes ({self.nodes}) must allow the {self.branch} actions of one state")
        if self.search != Strategy.BFS and not (self.nodes or self.tokens or self.seconds):
            raise ValueError(f"{self.search} needs a budget: set nodes or tokens")
        if self.search == Strategy.PUCT and self.beam != 2:
            raise ValueError("beam only works with bfs and best_first: puct expands one state at a time")
        if self.search != Strategy.PUCT and self.explore != 1:
            raise ValueError("explore only works with puct")

    @property
    def sessions(self) -> int:
        """Sessions of the engine that a search may need at once."""
        return self.branch * (1 if self.search == Strategy.PUCT else self.beam)


class ScorerKind(StrEnum):
    """What states, and whole episodes, are ranked by."""

    VALUE = "value"
    """The critic: V of where a search stands; of a finished episode V of the last state before its answer."""
    END_VALUE = "end_value"
    """V after the answer, which learned the outcome (``terminal_target outcome``): a verifier."""
    LOGPROB = "logprob"
    """The policy's own log-probability of the actions."""
    VALUE_LOGPROB = "value+logprob"
    END_VALUE_LOGPROB = "end_value+logprob"
    RANDOM = "random"
    MAJORITY = "majority"
    """How many of the episodes of a task gave the same answer."""
    ORACLE = "oracle"
    """The environment's own knowledge: an upper bound, no method."""

    @property
    def asks_critic(self) -> bool:
        return "value" in self

    @property
    def asks_policy(self) -> bool:
        return "logprob" in self

    @property
    def mixed(self) -> bool:
        """Whether it puts both together, with a weight."""
        return self.asks_critic and self.asks_policy


class LogprobForm(StrEnum):
    """How the log-probabilities of an episode's actions become one number."""

    MEAN = "mean"
    SUM = "sum"


SEARCHERS = (
    ScorerKind.VALUE,
    ScorerKind.LOGPROB,
    ScorerKind.VALUE_LOGPROB,
    ScorerKind.RANDOM,
    ScorerKind.ORACLE,
)


@dataclass(frozen=True)
class Scoring:
    """Which scorer a search uses. It is sent to other processes."""

    kind: ScorerKind = ScorerKind.VALUE
    form: LogprobForm = LogprobForm.MEAN
    weight: float = 1.0
    """Weight of a unit of log-probability next to the value."""
    discount: float = 1.0
    """The critic's discount per turn."""


@dataclass(frozen=True)
class SearchPlan:
    """How tasks are searched, and what their states are scored by. It is sent to other processes."""

    tot: ToTSettings
    scoring: Scoring
