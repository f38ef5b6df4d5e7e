"""Attention in C under sanitizers, which end the process at the first wrong access: run by test_compiled_attention."""

import sys
from ctypes import CDLL

import torch
from test_attention_plan import random_trees
from test_compiled_attention import CLOSE, apart, attend

from agents.compiled import tree_attention


def main(library: str) -> None:
    loaded = CDLL(library)
    tree_attention.library = lambda source: loaded  # type: ignore[assignment]
    tree_attention.WORTH = 1
    for seed in range(10):
        torch.set_num_threads(1 + seed % 2)
        batch = random_trees(seed, 20)
        for window in (None, 1, 5):
            for repeats, width in ((1, 1), (2, 6), (3, 33), (2, 64), (30, 16)):
                assert apart(*attend(batch, window, repeats=repeats, width=width, heads=1)) <= CLOSE
    print("nothing was touched that should not be")


if __name__ == "__main__":
    main(sys.argv[1])
