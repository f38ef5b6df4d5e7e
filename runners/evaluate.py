"""Measures agents on held-out tasks.

    turnwise evaluate --env wiki --model runs/wiki-selfac-0-…

    turnwise evaluate --env corridor --model RUN --agent best-of-n --scorer value logprob random

A run folder is measured twice, as the base model and as trained, on the same tasks. Reported are success, unbiased
pass@k, turns and tokens with bootstrap intervals over tasks, also by number of hops and language; and, where the run
has a critic, how well its values predict success (`calibration`). Agents that use scores play the trained policy
(`inference`). With --endpoint URL a served model is measured (`served`).
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    import runners

    runners.run("evaluate")

from collections.abc import Sequence
from dataclasses import fields

from runners.command_line.errors import UserError
from runners.command_line.interrupts import importing
from runners.command_line.parse import parse
from runners.inference.evaluate_settings import Evaluate, parts_of
from runners.served.settings import EvaluateServed
from runners.served.settings import parts_of as served_parts


def is_served(argv: Sequence[str]) -> bool:
    """Whether a command line asks for a served model. Raises UserError for flags that then have no effect, or else."""
    flags = [word.partition("=")[0].replace("_", "-") for word in argv if word.startswith("--")]
    if not {"--endpoint", "--engine"} & set(flags):
        return False
    for name in {f.name for f in fields(Evaluate)} - {f.name for f in fields(EvaluateServed)}:
        if f"--{name}" in flags:
            raise UserError(f"--{name} has no effect on a served model: leave it out")
    return True


def main() -> None:
    if is_served(sys.argv[1:]):
        asked, settings = parse(EvaluateServed, served_parts)
        with importing():
            from runners.served import program as served

        return served.run(asked, settings)
    evaluate, parts = parse(Evaluate, parts_of)
    with importing():
        from runners.inference.evaluate import run

    run(evaluate, parts)
