"""A sandbox for programs that nobody has read: a function of files and a command, on four kinds of walls."""

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
