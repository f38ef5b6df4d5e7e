"""Environments that need an optional package."""

NEEDS = {"babyai": "minigrid", "reasoning_gym": "reasoning_gym"}
"""Name of the environment → the package."""
