"""Engines: token ids in; ids, log-probs, entropies, stop reason and policy version out."""

from agents.engine.base import (
    Capabilities,
    Completion,
    ContextFull,
    Engine,
    Request,
    SamplingSettings,
    StopReason,
    check_request,
)
from agents.engine.registry import ENGINES, EngineChoice, Opening

__all__ = [
    "ENGINES",
    "Capabilities",
    "Completion",
    "ContextFull",
    "Engine",
    "EngineChoice",
    "Opening",
    "Request",
    "SamplingSettings",
    "StopReason",
    "check_request",
]
