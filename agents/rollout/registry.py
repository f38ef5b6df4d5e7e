"""Agents by name. Imports no torch: the command line shows their settings.

An agent of another package is a class like `ReActAgent`, named by the entry-point group ``turnwise.agents``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from agent_envs.plugins import Registry, check_settings
from agents.rollout.search.settings import ToTSettings

if TYPE_CHECKING:
    from agents.rollout.react import Player


class AgentKind(Protocol):
    """How an agent is made."""

    Config: type | None
    """A frozen dataclass whose fields, each with a default, are the flags ``--NAME.…``, beside those of
    ``--react.…``, which are every agent's. None: it has none of its own."""

    @staticmethod
    def player(settings: Any) -> Player:
        """What plays an episode: `agents.rollout.react.ReAct`, or a subclass of it with ``settings`` bound."""


class ReActAgent:
    """One action in every state, until the environment ends the episode."""

    Config = None

    @staticmethod
    def player(settings: None) -> Player:
        from agents.rollout.react import ReAct

        return ReAct


class ToTAgent:
    """Tree of thought: several actions in every state, led by the critic."""

    Config = ToTSettings

    @staticmethod
    def player(settings: ToTSettings) -> Player:
        return ReActAgent.player(None)


def check_kind(found: Any, who: str) -> None:
    """Raises ValueError unless ``found`` has a ``player``, and a ``Config`` that is None or settings."""
    if not callable(getattr(found, "player", None)):
        raise ValueError(f"{who} has no player(settings)")
    if getattr(found, "Config", found) is not None:
        check_settings(getattr(found, "Config", None), who)


AGENTS: Registry[AgentKind] = Registry(
    kind="agent",
    group="turnwise.agents",
    builtin={"react": "agents.rollout.registry:ReActAgent", "tot": "agents.rollout.registry:ToTAgent"},
    check=check_kind,
)


@dataclass(frozen=True)
class AgentChoice:
    """An agent by name, with its settings. It is sent to other processes."""

    name: str = "react"
    settings: Any = None

    def player(self) -> Player:
        """Raises ValueError for a name that is unknown."""
        return AGENTS.get(self.name).player(self.settings)
