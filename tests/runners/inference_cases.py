"""Lines of episodes, written by hand."""

from collections.abc import Sequence

from runners.inference.episode_scores import Scores


def line(
    task: int,
    won: bool,
    values: Sequence[float] | None = None,
    logps: Sequence[float] = (-1.0, -1.0),
    tokens: Sequence[int] | None = None,
    answer: object = "a",
    luck: float = 0.5,
    oracle: Sequence[float] | None = None,
) -> Scores:
    told = None if values is None else tuple(values)
    known = None if oracle is None else tuple(oracle)
    counts = tuple(tokens) if tokens else (5,) * len(logps)
    return Scores(task, float(won), counts, tuple(logps), told, known, answer, luck)
