"""The engine's own copy of the policy, and how a LoRA adapter gets into it.

Invariants: the model that was handed in is never changed, neither its modules nor its weights nor its configuration:
the engine works on a copy of the modules that shares the weight tensors. A merged weight is always W0 + scale * B A of
the pristine W0; nothing is ever un-merged, so no rounding piles up.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import safetensors.torch
import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from peft.tuners.lora import LoraLayer
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils.other import AuxiliaryTrainingWrapper
from torch import Tensor, nn
from transformers import PreTrainedModel

from agents.engine.cache import NAME

MERGE_UP_TO = 1_000_000_000
"""Parameters up to which float32 models run with the adapter merged into a second copy of the adapted weights."""
_KEPT_INITIALISATIONS = (True, False, "gaussian", "orthogonal")


def shared_copy(model: PreTrainedModel) -> PreTrainedModel:
    """New modules and configuration around the same weight tensors, without any adapter, ready for the slot cache."""
    memo: dict[int, Any] = {id(p): p for p in model.parameters()}
    twin = copy.deepcopy(model, memo)
    for name, module in list(twin.named_modules()):
        if isinstance(module, AuxiliaryTrainingWrapper):
            raise ValueError(f"{name}: a model with trained modules beside LoRA (modules_to_save) cannot be shared")
        if isinstance(module, BaseTunerLayer):
            if module.merged:
                raise ValueError(f"{name}: an adapter is merged into the base weights; unmerge it first")
            parent, _, child = name.rpartition(".")
            setattr(twin.get_submodule(parent), child, module.get_base_layer())
    if hasattr(twin, "peft_config"):
        del twin.peft_config
    twin.eval()
    if twin.is_gradient_checkpointing:
        twin.gradient_checkpointing_disable()
    twin.set_attn_implementation(NAME)
    return twin


def check_supported(model: PreTrainedModel, max_length: int) -> None:
    """Raises ValueError for a model whose state is more than keys and values per position, or would not fit."""
    config = model.config.get_text_config()
    name = type(model).__name__
    if not model._can_set_attn_implementation():
        raise ValueError(f"{name} does not call a replaceable attention function; the engine cannot run it")
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
    if kinds:
        raise ValueError(f"{name} has layers of type {', '.join(sorted(kinds))}; only attention layers can be cached")
    limit = getattr(config, "max_position_embeddings", None)
    rope = getattr(config, "rope_parameters", None) or {}
    for part in [rope, *(x for x in rope.values() if isinstance(x, dict))]:
        kind = part.get("rope_type", "default")
        short = part.get("original_max_position_embeddings") or limit
        if kind == "dynamic" or (kind == "longrope" and (short is None or max_length > short)):
            raise ValueError(f"{name} uses {kind} rotary positions, which change with the length: cached keys go stale")
    if limit is not None and max_length > limit:
        raise ValueError(f"max_length {max_length} is above the {limit} positions of {name}")


class PolicyWeights:
    """``model`` is what the engine calls; ``load`` changes its policy."""

    def __init__(
        self, model: PreTrainedModel, lora: LoraConfig | None, merge: bool | None, device: torch.device
    ) -> None:
        base = model.get_base_model() if isinstance(model, PeftModel) else model
        if base.device != device:
            base = copy.deepcopy(base).to(device)
        self.parameters = sum(p.numel() for name, p in base.named_parameters() if "lora_" not in name)
        self.model = shared_copy(base)
        self._adapter: PeftModel | None = None
        self._merged: list[tuple[LoraLayer, nn.Parameter]] = []
        self.how = "no LoRA"
        if lora is None:
            return
        if lora.init_lora_weights not in _KEPT_INITIALISATIONS:
            raise ValueError(f"init_lora_weights={lora.init_lora_weights!r} changes the base weights; use True")
        float32 = all(p.dtype == torch.float32 for p in self.model.parameters())
        plain = not (lora.use_dora or lora.lora_bias or lora.bias != "none" or lora.modules_to_save)
        if merge is None:
            merge = plain and float32 and self.parameters <= MERGE_UP_TO
        elif merge and not plain:
            raise ValueError("merge=True needs plain LoRA: no DoRA, no biases, no modules_to_save")
        devices = sorted({p.device for p in self.model.parameters() if p.device.type == "cuda"}, key=str)
        with torch.random.fork_rng(devices):  # the fresh adapter draws numbers that are overwritten anyway
            self._adapter = get_peft_model(
                shared_copy(base) if merge else self.model, copy.deepcopy(lora), autocast_adapter_dtype=False
            )
        self._adapter.eval()
        layers = {n: m for n, m in self._adapter.get_base_model().named_modules() if isinstance(m, LoraLayer)}
        self.how = f"LoRA on {len(layers)} layers, unmerged"
        if merge:
            self.how = f"LoRA merged into own copies of {len(layers)} weights"
            for name, layer in layers.items():
                module = self.model.get_submodule(name)
                module.weight = nn.Parameter(layer.get_base_layer().weight.detach().clone(), requires_grad=False)
                self._merged.append((layer, module.weight))
        self.load(None)

    @torch.inference_mode()
    def load(self, adapter: Mapping[str, Tensor] | bytes | None) -> None:
        """Takes an adapter as peft's ``get_peft_model_state_dict`` gives it, or its safetensors bytes.

        None is the base model. Raises ValueError when the adapter does not fit; the policy is then as before.
        """
        if adapter is None:
            if self._adapter is not None and not self._merged:
                self._adapter.base_model.disable_adapter_layers()
            for layer, weight in self._merged:
                weight.copy_(layer.get_base_layer().weight)
            return
        if self._adapter is None:
            raise ValueError("this engine was made without a LoRA configuration and cannot take an adapter")
        state = safetensors.torch.load(adapter) if isinstance(adapter, bytes) else dict(adapter)
        self._check(state)
        set_peft_model_state_dict(self._adapter, state)
        if not self._merged:
            self._adapter.base_model.enable_adapter_layers()
        for layer, weight in self._merged:
            torch.add(layer.get_base_layer().weight, layer.get_delta_weight("default"), out=weight)

    def _check(self, state: Mapping[str, Tensor]) -> None:
        """Raises ValueError unless ``state`` holds exactly the adapter's tensors."""
        assert self._adapter is not None
        mine = {k: tuple(v.shape) for k, v in get_peft_model_state_dict(self._adapter).items()}
        theirs = {k: tuple(v.shape) for k, v in state.items()}
        if mine != theirs:
            wrong = sorted(k for k in mine.keys() | theirs.keys() if mine.get(k) != theirs.get(k))
            raise ValueError(f"the adapter does not fit the LoRA configuration: {len(wrong)} tensors, first {wrong[0]}")
