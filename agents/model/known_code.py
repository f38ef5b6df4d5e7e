"""Which layers of transformers are, to the letter, others under another name."""

import inspect
import sys
from functools import cache
from typing import Any

_TURNING = ("apply_rotary_pos_emb", "rotate_half")
"""Functions of a model's file that its attention calls."""


def same_code(layer: Any, known: Any) -> bool:
    """Whether two classes have the same forward pass, functions that turn queries and keys included."""
    return _same(layer, known)


@cache
def _same(layer: Any, known: Any) -> bool:
    if _code(layer) != _code(known):
        return False
    files = [vars(sys.modules[one.__module__]) for one in (layer, known)]
    turning = _TURNING if _TURNING[0] in _code(known) else ()
    return all(len({inspect.getsource(file[name]) for file in files}) == 1 for name in turning)


@cache
def _code(layer: Any) -> str:
    """Source of the forward pass; of layers without one, a name that no other has."""
    try:
        return inspect.getsource(layer.forward)
    except (AttributeError, OSError, TypeError):
        return f"{layer.__module__}.{layer.__qualname__}"
