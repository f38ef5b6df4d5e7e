"""The taskset `turnwise-verifiers` of verifiers' programs, which find a taskset as a module of this name."""

from runners.interop.for_verifiers import TurnwiseEnv, TurnwiseHarness, TurnwiseTaskset

__all__ = ["TurnwiseEnv", "TurnwiseHarness", "TurnwiseTaskset"]
