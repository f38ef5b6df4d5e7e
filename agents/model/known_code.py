"""Which layers of transformers are, to the letter, others under another name."""

import inspect
import sys
from functools import cache
from types import FunctionType
from typing import Any

from transformers.models.llama import modeling_llama

TURN = "apply_rotary_pos_emb"
"""The function of a model's file by which its attention turns queries and keys."""
_TURNING = (TURN, "rotate_half")


def same_code(layer: Any, known: Any) -> bool:
    """Whether two classes have the same forward pass, functions that turn queries and keys included."""
    return _same(layer, known)


@cache
def turns(layer: Any) -> bool:
    """Whether a class's forward pass is a plain function that turns queries and keys as Llama's does."""
    forward = getattr(layer, "forward", None)
    if not isinstance(forward, FunctionType) or TURN not in forward.__code__.co_names:
        return False
    return all(_source(forward.__globals__.get(name)) == _source(vars(modeling_llama)[name]) for name in _TURNING)


@cache
def _source(function: Any) -> str | None:
    return inspect.getsource(function) if callable(function) else None


@cache
def _same(layer: Any, known: Any) -> bool:
    if _code(layer) != _code(known):
        return False
    files = [vars(sys.modules[one.__module__]) for one in (layer, known)]
    turning = _TURNING if TURN in _code(known) else ()
    return all(len({_source(file[name]) for file in files}) == 1 for name in turning)


@cache
def _code(layer: Any) -> str:
    """Source of the forward pass; of layers without one, a name that no other has."""
    try:
        return inspect.getsource(layer.forward)
    except (AttributeError, OSError, TypeError):
        return f"{layer.__module__}.{layer.__qualname__}"
