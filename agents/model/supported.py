"""Checks that a model reads token trees exactly; every model that would silently be wrong is refused.

First the config is read (cheap, clear messages), then a tiny tree is run through the model and compared with ordinary
forwards of its paths, which also catches what no config shows.

Legend: T tokens, N rows of one path, V vocabulary.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from transformers import PreTrainedModel

from agents.model.attention.interface import NAME, RowPlan
from agents.text.errors import ModelError
from agents.tree import Batch, Kind, Node
from agents.tree.packing import pack

KNOWN_LAYERS = {"full_attention", "sliding_attention"}


def check_config(model: PreTrainedModel) -> None:
    """Raises ModelError for a model whose config says that a tree cannot be exact in it."""
    config = model.config.get_text_config(decoder=True)
    name = f"{type(model).__name__} ({config.model_type})"
    odd = sorted(set(getattr(config, "layer_types", None) or ()) - KNOWN_LAYERS)
    if odd:
        raise ModelError(f"{name} has {', '.join(odd)} layers, whose state cannot branch: use a full-attention model")
    if getattr(model, "_is_stateful", False):
        raise ModelError(f"{name} carries a recurrent state, which cannot branch: use a full-attention model")
    if getattr(config, "is_encoder_decoder", False) or not getattr(config, "is_causal", True):
        raise ModelError(f"{name} is not a causal decoder: use a causal language model")
    for key in ("attn_logit_softcapping", "attention_chunk_size"):
        if getattr(config, key, None):
            raise ModelError(f"{name} sets {key}, which attention over trees does not implement: use another model")
    if model.get_output_embeddings() is None or model.base_model is model:
        raise ModelError(f"{name} has no output layer over a body: load it with AutoModelForCausalLM")


def dispatch(model: PreTrainedModel) -> None:
    """Routes the model's attention through ours. Raises ModelError where the model does its own attention."""
    refusal = f"{type(model).__name__} does not use transformers' attention interface: use another model"
    try:
        model.set_attn_implementation(NAME)
    except ValueError as error:
        raise ModelError(refusal) from error
    if model.config._attn_implementation != NAME:  # transformers only warns and keeps what was
        raise ModelError(refusal)


class _Watched:
    """A plan that notes which window each layer asks for."""

    def __init__(self, plan: RowPlan) -> None:
        self.plan, self.order_T, self.place_T = plan, plan.order_T, plan.place_T
        self.windows: list[int | None] = []

    def __len__(self) -> int:
        return len(self.plan)

    def attend(
        self, query_THD: Tensor, key_TGD: Tensor, value_TGD: Tensor, window: int | None, scale: float | None
    ) -> Tensor:
        self.windows.append(window)
        return self.plan.attend(query_THD, key_TGD, value_TGD, window, scale)


def _tree(vocabulary: int) -> Batch:
    """Two branches below a root, a critic prompt under every state: 21 tokens."""
    ids = iter((7 * i + 3) % vocabulary for i in range(100))

    def some(n: int) -> tuple[int, ...]:
        return tuple(next(ids) for _ in range(n))

    root = Node(Kind.STATE, some(4))
    for _ in range(2):
        root.add(Node(Kind.ACTION, some(2))).add(Node(Kind.STATE, some(2)))
    return pack([root], critic_prompt=some(3))


@torch.no_grad()
def probe(
    model: PreTrainedModel, logits: Callable[[Batch, RowPlan], Tensor], plan_of: Callable[[Batch], RowPlan]
) -> None:
    """Raises ModelError when a packed tree differs from ordinary forwards of its paths by more than rounding.

    ``logits`` runs ``model`` on a packed batch [T] by a plan that ``plan_of`` makes, and returns [T, V].
    A model on the meta device has no numbers to compare, and only its shapes are of use.
    """
    if model.device.type == "meta":
        return
    config = model.config.get_text_config(decoder=True)
    name = f"{type(model).__name__} ({config.model_type})"
    batch = _tree(config.vocab_size).to(model.device)
    plan = _Watched(plan_of(batch))
    try:
        packed_TV = logits(batch, plan)
    except ModelError:
        raise
    except Exception as error:  # whatever a foreign model raises on a tree: it cannot be used
        raise ModelError(f"{name} does not run on a token tree ({error}): use another model") from error

    types = getattr(config, "layer_types", None) or ["sliding_attention"] * config.num_hidden_layers
    window = getattr(config, "sliding_window", None)
    expected = [window if kind == "sliding_attention" else None for kind in types]
    if plan.windows != expected:
        raise ModelError(
            f"{name} does not route every layer through transformers' attention interface "
            f"(windows {plan.windows}, config says {expected}): use another model"
        )

    tolerance = 1e-3 if packed_TV.dtype == torch.float64 or model.dtype == torch.float32 else 5e-2
    for tip in torch.nonzero(batch.end_T == torch.arange(1, len(batch) + 1, device=batch.end_T.device)).flatten():
        row_N = torch.nonzero(batch.end_T[: tip + 1] > tip).flatten()  # the path: the tip and its ancestors
        alone_NV = model(input_ids=batch.token_T[row_N][None], use_cache=False).logits[0].to(packed_TV.dtype)
        off = (packed_TV[row_N] - alone_NV).abs().max() / alone_NV.abs().max().clamp_min(1e-12)
        if not off <= tolerance:
            raise ModelError(
                f"{name} reads a token tree differently from its single paths (relative difference {off:.1e}): "
                "something in it looks past the attention mask; use another model"
            )
