"""What reports say of an algorithm's credit: where it goes, and how it is found."""

from dataclasses import dataclass
from enum import StrEnum


class Granularity(StrEnum):
    """The smallest thing that gets a credit of its own."""

    TOKEN = "token"
    SEGMENT = "segment"
    TURN = "turn"
    EPISODE = "episode"


class Methodology(StrEnum):
    """How credit is found, in families of Zhang 2026 (arXiv 2604.09459, section 2.4), and by an oracle."""

    MONTE_CARLO = "Monte Carlo"
    TEMPORAL_DIFFERENCE = "temporal difference"
    JUDGE = "model-based: a judge"
    ORACLE = "an oracle of the environment"


@dataclass(frozen=True)
class CreditKind:
    """What a report of a comparison says of an algorithm's credit."""

    granularity: Granularity
    methodology: Methodology
