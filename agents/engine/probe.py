"""Checks that the engine runs a model exactly; every model it would silently get wrong is refused."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from agents.engine.cache import NAME, RowRun
from agents.model.supported import check_config
from agents.text.errors import ModelError


def check_supported(model: PreTrainedModel, max_length: int) -> None:
    """Raises ModelError for a model whose configuration says that cached keys cannot be right, or do not fit."""
    check_config(model)
    config = model.config.get_text_config(decoder=True)
    name = type(model).__name__
    if not model._can_set_attn_implementation():
        raise ModelError(f"{name} does not use transformers' attention interface: use another model")
    limit = getattr(config, "max_position_embeddings", None)
    rope = getattr(config, "rope_parameters", None) or {}
    for part in [rope, *(x for x in rope.values() if isinstance(x, dict))]:
        kind = part.get("rope_type", "default")
        short = part.get("original_max_position_embeddings") or limit
        if kind == "dynamic" or (kind == "longrope" and (short is None or max_length > short)):
            raise ModelError(
                f"{name} has {kind} rotary positions, which turn with the length, so that cached keys go stale: "
                f"use another model{'' if short is None else f' or at most {short} tokens'}"
            )
    if limit is not None and max_length > limit:
        raise ModelError(f"a session of {max_length} tokens does not fit the {limit} positions of {name}")


@torch.inference_mode()
def probe(model: PreTrainedModel, forward: Callable[..., Tensor], max_length: int) -> None:
    """Raises ModelError when reading, decoding and reading on differ from one ordinary forward.

    ``forward`` is `agents.engine.hf.HFEngine.forward`; it runs ``model``.
    """
    name, vocabulary = type(model).__name__, model.config.get_text_config(decoder=True).vocab_size
    tokens = np.array([(7 * i + 3) % vocabulary for i in range(min(9, max_length))], dtype=np.int64)
    row, at, got = np.zeros(len(tokens), dtype=np.int64), np.arange(len(tokens)), None
    for start, stop in ((0, 5), (5, 6), (6, 9)):
        if start < len(tokens):
            new = slice(start, min(stop, len(tokens)))
            decode = stop - start == 1
            runs = [] if decode else [RowRun(0, len(tokens[new]), 0, start)]
            keep = np.array([len(tokens[new]) - 1])
            got = forward(tokens[new], row[new], at[new], row[:1] if decode else row[:0], runs, keep)
    assert got is not None
    model.set_attn_implementation("sdpa")
    try:
        alone = model(input_ids=torch.from_numpy(tokens)[None].to(model.device), use_cache=False).logits[0, -1]
    finally:
        model.set_attn_implementation(NAME)
    off = (got[0] - alone).abs().max() / alone.abs().max().clamp_min(1e-12)
    if not off <= (1e-3 if alone.dtype in (torch.float32, torch.float64) else 5e-2):
        raise ModelError(f"{name} computes other logits with cached keys (relative difference {off:.1e}): use another")
