"""Our C under sanitizers, which end the process at the first wrong access: run by test_compiled_build."""

import sys
from ctypes import CDLL
from unittest.mock import patch

import torch
from engine_cases import FAMILIES, SIZE, WIDE, engine_of, largest_error, model, play, sessions
from engine_contract import TOLERANCE
from test_attention_plan import random_trees
from test_compiled_attention import CLOSE, apart, attend
from test_compiled_layers import PARTS, far
from test_compiled_linear import Case, furthest

from agents.compiled import adapted, layers, transformer, tree_attention


def trees() -> None:
    tree_attention.WORTH = 1
    for seed in range(10):
        torch.set_num_threads(1 + seed % 2)
        batch = random_trees(seed, 20)
        for window in (None, 1, 5):
            for repeats, width in ((1, 1), (2, 6), (3, 33), (2, 64), (30, 16)):
                assert apart(*attend(batch, window, repeats=repeats, width=width, heads=1)) <= CLOSE


def parts() -> None:
    torch.set_num_threads(1)
    for name in PARTS:
        for rows, width in ((1, 1), (3, 7), (5, 16), (4, 33), (2, 100)):
            assert far(name, rows, width) <= CLOSE


def linear() -> None:
    torch.set_num_threads(1)
    adapted.ROWS, adapted.pays = 1, lambda: True
    for rows, wide, inner, ranks in ((1, 16, 16, 1), (47, 32, 48, 3), (49, 48, 16, 8), (100, 16, 80, 17)):
        for mlp in (False, True):
            assert furthest(Case(mlp, rows, wide, inner, ranks, bias=rows % 2 == 1)) <= CLOSE


def engines() -> None:
    torch.set_num_threads(1)
    for family in FAMILIES:
        for size in (SIZE, WIDE):
            reference, todo = model(family, size=size), sessions(12)
            engine = engine_of(reference, slots=5)
            assert ("in C" in engine.describe()) == (family != "mistral")
            play(engine, todo, delay=3)
            assert largest_error(reference, todo) <= TOLERANCE


def main(source: str, library: str) -> None:
    loaded = CDLL(library)
    module, run = {
        "adapted": (adapted, linear),
        "layers": (layers, parts),
        "tree_attention": (tree_attention, trees),
        "transformer": (transformer, engines),
    }[source]
    with patch.multiple(module, library=lambda source: loaded, why_not=lambda source: ""):
        run()
    print("nothing was touched that should not be")


if __name__ == "__main__":
    main(*sys.argv[1:])
