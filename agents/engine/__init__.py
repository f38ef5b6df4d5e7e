"""Engines: token ids in; ids, log-probs, entropies, stop reason and policy version out."""

from agents.engine.base import (
    Completion,
    ContextFull,
    Engine,
    Request,
    SamplingSettings,
    StopReason,
    check_request,
)

__all__ = ["Completion", "ContextFull", "Engine", "Request", "SamplingSettings", "StopReason", "check_request"]
