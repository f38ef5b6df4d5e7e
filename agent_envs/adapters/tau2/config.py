"""Settings of τ² telecom."""

from dataclasses import dataclass
from enum import StrEnum

from agent_envs.core import SettingsError
from agent_envs.ranges import check_ranges


class Policy(StrEnum):
    """What the agent reads before the ticket."""

    MANUAL = "manual"
    """τ²'s policy with its manual of technical support: 23,000 characters."""
    WORKFLOW = "workflow"
    """The same, with the manual as a workflow: 21,000 characters."""
    NONE = "none"
    """Nothing but the tools, for models of short contexts."""


class Tickets(StrEnum):
    """Which tickets are training tasks."""

    BASE = "base"
    """Those of τ²'s own training split: 74."""
    FULL = "full"
    """All that are no validation or test tasks: 2,225."""


@dataclass(frozen=True)
class Tau2Config:
    """Settings of τ² telecom."""

    policy: Policy = Policy.MANUAL
    """What the agent reads before the ticket."""
    tickets: Tickets = Tickets.BASE
    """Which tickets are training tasks. Test tasks are τ²'s own 40, validation tasks the 20 of its small set."""
    max_turns: int = 50
    """Turns of an episode: to run out of them is a failure, as in τ²."""

    def __post_init__(self) -> None:
        check_ranges(self, SettingsError, "tau2: ", max_turns=1)
