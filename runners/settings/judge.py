"""Which judge a run has. Imports no torch."""

from typing import Any

from agents.judge import JudgeSettings
from agents.judge.base import JUDGES
from algorithms.base import Algorithm, JudgedAlgorithm
from runners.command_line.errors import UserError
from runners.settings.run_settings import RunSettings


def judge_settings(settings: RunSettings, algorithm: Algorithm[Any] | None = None) -> JudgeSettings | None:
    """The settings of the judge that ``algorithm`` (by default the run's own) needs; None where it needs none.

    Raises UserError where no judge is named and one is needed.
    """
    algorithm = algorithm or settings.algorithm
    if not algorithm.needs.judge:
        return None
    train, judge = settings.train, settings.judge
    if judge is None or judge.kind is None:
        flag = algorithm.without_judge if isinstance(algorithm, JudgedAlgorithm) else ""
        off = f", or learn from outcomes alone with --{train.algo}.{flag}" if flag else ""
        raise UserError(f"--algo {train.algo} needs a judge: --judge.kind {', '.join(JUDGES.names())}{off}")
    try:
        JUDGES.get(judge.kind)
    except ValueError as error:
        raise UserError(f"--judge.kind: {error}") from None
    return judge
