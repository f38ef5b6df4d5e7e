"""Settings of rollouts. Imports no tokenizer: the command line needs them."""

from dataclasses import dataclass

from agent_envs.ranges import check_ranges

MOST_TOKENS = 10_000_000
"""No model reads more; a mistyped number would only fill the memory."""


@dataclass(frozen=True)
class ReActSettings:
    """How an episode is played."""

    max_action_tokens: int = 96
    """Longest action in tokens; a longer one is cut, and most environments then refuse it."""
    max_tokens: int = 2048
    """Longest episode in tokens; a longer one is truncated."""
    call_limit: int = 0
    """Actions that are answered with an observation; the next one must end the episode, or the episode is truncated. 0:
    the environment's own limit."""
    name_empty: bool = False
    """Answer an action that returns nothing with ``Tool(NAME) returned empty output.``"""
    oracle: bool = False
    """Record the environment's own chance of success in every state. The agent never sees it."""

    def __post_init__(self) -> None:
        check_ranges(self, max_action_tokens=(1, MOST_TOKENS), max_tokens=(2, MOST_TOKENS), call_limit=0)


@dataclass(frozen=True)
class FaultSettings:
    """What is done about environments that break; a bad action of the model is not a fault."""

    retries: int = 2
    """Times an episode is played again after its environment broke; then it is left out of the update."""
    max_rate: float = 0.5
    """The run stops when more than this share of the last 200 attempts broke."""
    stall_seconds: float = 900.0
    """The run stops when no episode has ended for this many seconds."""

    def __post_init__(self) -> None:
        check_ranges(self, retries=(0, 1000))
        if not 0 < self.max_rate <= 1:
            raise ValueError(f"max_rate must lie above 0 and up to 1, not {self.max_rate}")
        if not self.stall_seconds > 0:
            raise ValueError(f"stall_seconds must be above 0, not {self.stall_seconds}")
