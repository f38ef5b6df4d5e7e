"""Compares the credit that algorithms assign to the same episodes with true progress.

    turnwise credit --model runs/corridor-selfac-0-… --algos selfac grpo gigpo --episodes 500
    turnwise credit --model RUN --runs RUN RUN-OF-PPO …
    turnwise credit --model RUN --continuations 16 --episodes 96

The episodes are played with the policy that --model began from and with the one it ended with. Progress is a change of
the environment's own chance of success (``TextEnv.oracle``), or, in any environment, of what the policy gets when it
plays on from a state several times. A run under --runs takes part with its own algorithm, settings and critic; an
algorithm under --algos with the critic of --model. Nothing is trained.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    import runners

    runners.run("credit")

import torch

from algorithms import algorithm_class
from runners.command_line.interrupts import importing
from runners.command_line.outputs import check_folder
from runners.command_line.parse import parse
from runners.crediting.settings import Credit


def main() -> None:
    def parts_of(credit: Credit) -> dict[str, type]:
        return {name: algorithm_class(name) for name in credit.algos}

    credit, algorithms = parse(Credit, parts_of)
    if credit.out:
        check_folder(credit.out)
    with importing():
        from runners.crediting import program

    torch.set_num_threads(credit.threads)
    program.run(credit, algorithms)
