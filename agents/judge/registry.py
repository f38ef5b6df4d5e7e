"""Judges by name.

A judge of another package is a class with ``open``, named by the entry-point group ``turnwise.judges``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from agent_envs.plugins import Registry

if TYPE_CHECKING:
    from agents.judge.base import Judge, JudgeSettings


class OutsideJudge(Protocol):
    """How a judge of another package is made."""

    @staticmethod
    def open(settings: JudgeSettings) -> Judge:
        """Raises JudgeError, in one line that the user can act on."""


def check_kind(found: Any, who: str) -> None:
    """Raises ValueError unless ``found`` has ``open``."""
    if not callable(getattr(found, "open", None)):
        raise ValueError(f"{who} has no open(settings)")


JUDGES: Registry[Any] = Registry(
    kind="judge",
    group="turnwise.judges",
    builtin={
        "critic": "agents.judge.critic:CriticJudge",
        "endpoint": "agents.judge.endpoint:EndpointJudge",
        "oracle": "agents.judge.oracle:OracleJudge",
        "policy": "agents.judge.policy:PolicyJudge",
    },
    check=check_kind,
)
