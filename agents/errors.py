"""The one error of the model side: a model, an adapter or a batch that cannot be used, and what to do about it."""

from __future__ import annotations


class ModelError(ValueError):
    """One line for the person who started the program: what is wrong and how to mend it."""
