"""A sandbox for untrusted programs: a function of files and a command, behind four kinds of walls."""

from agent_envs.code.sandbox.interface import (
    Capabilities,
    Limits,
    RunResult,
    Sandbox,
    SandboxFault,
    SandboxJob,
    SandboxUnavailable,
    Status,
    check_name,
)

__all__ = [
    "Capabilities",
    "Limits",
    "RunResult",
    "Sandbox",
    "SandboxFault",
    "SandboxJob",
    "SandboxUnavailable",
    "Status",
    "check_name",
]
