"""A package whose names are taken."""


class Anything:
    """It is refused before it is looked at."""
