"""Rollout workers: in this process (`local`) or in others (`process`), by one protocol (`base`)."""
