"""The attention function "turnwise_tree": any Hugging Face model that dispatches its attention can read token trees.

Invariant: with a plan it equals dense attention under ``mask.tree_mask``; without one it *is* transformers'
own SDPA, so the same model object generates as ever. What it does not implement it refuses; it never ignores.

The plan travels as the keyword ``tree_plan`` of the model call, which transformers hands to every layer. A 4D mask
without entries goes with it: transformers takes a 4D mask as it is and so builds no T x T mask, nor guesses packed
sequences from positions that jump.

Legend: T tokens, H heads, G key heads, D width of a head.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from agents.text.errors import ModelError

NAME = "turnwise_tree"

# Keywords that reach an attention function and change nothing in it: rotary positions are applied before.
_PASSIVE = frozenset({"position_ids", "cache_position", "position_embeddings", "use_cache", "output_router_logits"})


class RowPlan(Protocol):
    """How the attention of one row of token trees is computed. Its length is that of the row."""

    order_T: Tensor | None
    """Row (depth first) of each place that the model is given; None where the two are the same."""
    place_T: Tensor | None
    """Its inverse."""

    def __len__(self) -> int: ...

    def attend(
        self, query_THD: Tensor, key_TGD: Tensor, value_TGD: Tensor, window: int | None, scale: float | None
    ) -> Tensor:
        """[T, H, D]: attention of every row to its ancestors, with ``window`` to those less far above than that."""
        ...


def with_effect(keywords: Mapping[str, Any]) -> list[str]:
    """Those of an attention function's further keywords that ask it for something."""
    return sorted(k for k, v in keywords.items() if k not in _PASSIVE and v is not None and v is not False)


def marker_mask(device: torch.device) -> Tensor:
    """The 4D mask without entries that accompanies a plan."""
    return torch.empty(1, 1, 0, 0, device=device)


def tree_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    tree_plan: RowPlan | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention of one row: query [1, H, T, D], key and value [1, G, T, D] -> [1, T, H, D].

    Raises ModelError for every keyword whose effect is not implemented, and for a row that does not fit the plan.
    """
    if tree_plan is None:
        if attention_mask is not None and attention_mask.numel() == 0 and query.numel():
            raise ModelError("this model does not hand the tree plan to its attention layers: it cannot read trees")
        return sdpa_attention_forward(
            module,
            query,
            key,
            value,
            attention_mask,
            dropout=dropout,
            scaling=scaling,
            is_causal=is_causal,
            sliding_window=sliding_window,
            **others,
        )
    if unknown := with_effect(others):
        raise ModelError(f"this model's attention needs {', '.join(unknown)}, which trees do not support: use another")
    if dropout:
        raise ModelError(f"attention dropout is {dropout}: with dropout no ratio is exact; set it to 0 in the config")
    if is_causal is False or not getattr(module, "is_causal", True):
        raise ModelError("this model attends in both directions; only causal language models can be trained")
    if attention_mask is not None and attention_mask.numel():
        raise ModelError("an attention mask came with a tree plan: the plan already is the mask")
    if query.shape[0] != 1 or not query.shape[2] == key.shape[2] == len(tree_plan):
        raise ModelError(f"a plan of {len(tree_plan)} tokens met queries of shape {tuple(query.shape)}")
    query_THD, key_TGD, value_TGD = (x.squeeze(0).transpose(0, 1) for x in (query, key, value))
    return tree_plan.attend(query_THD, key_TGD, value_TGD, sliding_window, scaling)[None], None


AttentionInterface.register(NAME, tree_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
