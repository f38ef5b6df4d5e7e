"""Scores of a finished episode: pure functions of the gold answer and evidence and of what the agent did."""

from collections.abc import Collection
from dataclasses import dataclass

from agent_envs import scoring
from agent_envs.wiki.config import OutcomeScore
from agent_envs.wiki.tasks import Gold


@dataclass(frozen=True)
class Scores:
    """All in [0, 1]."""

    em: float
    """1 when the answer equals an accepted form once both are normalised."""
    f1: float
    """Best F1 over the accepted forms: words, or characters for a Chinese form."""
    evidence_p: float
    """Share of the saved lines that are gold."""
    evidence_r: float
    """Share of the gold lines that were saved."""


def score(gold: Gold, answer: str | None, saved: Collection[tuple[str, int]]) -> Scores:
    """Scores of an answer (None: never submitted) and of the saved (title, line id) pairs."""
    precision, recall = scoring.precision_recall(saved, gold.evidence)
    if answer is None:
        return Scores(0.0, 0.0, precision, recall)
    return Scores(scoring.exact(answer, gold.accepted), scoring.answer_f1(answer, gold.accepted), precision, recall)


def reward(scores: Scores, outcome: OutcomeScore, evidence: float = 0.0, beta: float = 0.5) -> float:
    """``(1 - w)·outcome + w·F_β(evidence)`` with w = `evidence`; 1 for the right answer with exactly the gold lines."""
    answer = scores.em if outcome is OutcomeScore.EXACT else scores.f1
    return (1 - evidence) * answer + evidence * scoring.f_beta(scores.evidence_p, scores.evidence_r, beta)
