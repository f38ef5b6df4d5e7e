"""Judges by name."""

from __future__ import annotations

from typing import Any

from agent_envs.plugins import Registry

JUDGES: Registry[type[Any]] = Registry(
    kind="judge",
    group="turnwise.judges",
    builtin={
        "critic": "agents.judge.critic:CriticJudge",
        "endpoint": "agents.judge.endpoint:EndpointJudge",
        "oracle": "agents.judge.oracle:OracleJudge",
        "policy": "agents.judge.policy:PolicyJudge",
    },
)
