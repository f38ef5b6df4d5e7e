"""Models whose code is known to the letter: those of Llama, Qwen2 and Qwen3, on a CPU in float32.

Legend: H heads, K key heads, D width of a head.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.models.llama import modeling_llama as llama
from transformers.models.qwen2 import modeling_qwen2 as qwen2
from transformers.models.qwen3 import modeling_qwen3 as qwen3

from agents.model.attention.onednn_linear import WideLinear
from agents.model.known_code import same_code
from agents.model.lean_layers import Gated, Norm


@dataclass(frozen=True)
class Family:
    """Whose code is known."""

    model: type
    body: type
    layer: type
    attention: type
    windowed: bool = True
    """A layer's attention may have a sliding window."""
    normed: bool = False
    """Queries and keys have norms."""


FAMILIES = (
    Family(llama.LlamaForCausalLM, llama.LlamaModel, llama.LlamaDecoderLayer, llama.LlamaAttention, windowed=False),
    Family(qwen2.Qwen2ForCausalLM, qwen2.Qwen2Model, qwen2.Qwen2DecoderLayer, qwen2.Qwen2Attention),
    Family(qwen3.Qwen3ForCausalLM, qwen3.Qwen3Model, qwen3.Qwen3DecoderLayer, qwen3.Qwen3Attention, normed=True),
)


class LayerParts:
    """The modules and sizes of one layer."""

    def __init__(self, layer: Any, family: Family) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.before, self.after = layer.input_layernorm, layer.post_attention_layernorm
        self.index: int = attention.layer_idx
        self.scale: float = attention.scaling
        self.window: int | None = attention.sliding_window if family.windowed else None
        self.D: int = attention.head_dim
        self.H, self.K = (x.out_features // self.D for x in (attention.q_proj, attention.k_proj))
        self.heads: tuple[torch.Tensor, float] | None = None
        """Weights [H + K, D] of the norms of queries and keys, and their epsilon."""
        if family.normed:
            of = (attention.q_norm.weight.expand(self.H, -1), attention.k_norm.weight.expand(self.K, -1))
            self.heads = torch.cat(of), attention.q_norm.variance_epsilon
        self.read = [attention.q_proj, attention.k_proj, attention.v_proj]
        self.write = [attention.o_proj]
        self.open, self.close = [mlp.gate_proj, mlp.up_proj], [mlp.down_proj]


def family_of(model: PreTrainedModel) -> Family | None:
    """The family of ``model``; None unless its code is known, its layers have no adapters, and no one listens in."""
    here = all(p.dtype == torch.float32 and p.device.type == "cpu" and not p.is_inference() for p in model.parameters())
    watched = any(m._forward_hooks or m._forward_pre_hooks or "forward" in vars(m) for m in model.modules())
    if not here or watched:
        return None
    body: Any = model.base_model
    plain = (nn.Linear, WideLinear)
    for family in FAMILIES:
        if (
            same_code(type(model), family.model)
            and same_code(type(body), family.body)
            and type(body.embed_tokens) is nn.Embedding
            and type(model.get_output_embeddings()) in plain
            and isinstance(body.norm, Norm)
            and all(_fits(layer, family, plain) for layer in body.layers)
        ):
            return family
    return None


def _fits(layer: Any, family: Family, plain: tuple[type, ...]) -> bool:
    """Whether a layer is one of the family's, with linear layers that are ``plain``."""
    attention, mlp = layer.self_attn, layer.mlp
    if not (same_code(type(layer), family.layer) and same_code(type(attention), family.attention)):
        return False
    norms = [layer.input_layernorm, layer.post_attention_layernorm]
    norms += [attention.q_norm, attention.k_norm] if family.normed else []
    products = [module for name, module in layer.named_modules() if name.endswith("_proj")]
    return (
        isinstance(mlp, Gated)
        and mlp.swish
        and all(isinstance(norm, Norm) for norm in norms)
        and all(type(product) in plain for product in products)
    )


class KnownBody:
    """What computes a model of a known family, by copies of its weights; `follow` makes them anew when they change."""

    def __init__(self, model: PreTrainedModel, family: Family) -> None:
        self._model, self._family = model, family
        self._weights = list(model.parameters())
        self._stamp = -1

    def follow(self) -> None:
        stamp = sum(weight._version for weight in self._weights)
        if stamp != self._stamp:
            self._stamp = stamp
            self._copy()

    def _copy(self) -> None:
        raise NotImplementedError
