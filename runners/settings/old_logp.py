"""Whose log-probabilities an update starts from: the engine's, as it sampled, or the trainer's own."""

from enum import StrEnum


class OldLogp(StrEnum):
    """Engine: those of sampling, at no cost. Trainer: an extra forward pass before the update. Auto: the engine's, once
    the last update measured that the two agree, and the trainer's where they need not be the same."""

    AUTO = "auto"
    ENGINE = "engine"
    TRAINER = "trainer"


AGREE = 1e-4
"""Largest difference at which the two agree: it moves a ratio by 0.01 %, and ratios are clipped at tens of percent."""
