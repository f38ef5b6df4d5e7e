"""Judges: who calls every action of a finished episode GOOD or BAD.

Invariant: a judge sees what was done and never changes it; what it did not say, or did not say readably, is None.
"""

from agents.judge.base import Judge, JudgeError, JudgeKind, JudgeSettings, Labels, Verdicts

__all__ = ["Judge", "JudgeError", "JudgeKind", "JudgeSettings", "Labels", "Verdicts"]
