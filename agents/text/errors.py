"""Errors of the model side that a user can fix, each one line that says how."""


class ModelError(ValueError):
    """A model, an adapter or a batch that cannot be used."""


class ChatError(ValueError):
    """A tokenizer or chat template that cannot be used."""


class EngineError(ValueError):
    """The engine cannot do what a run needs; one line."""
