"""The engine's own copy of the policy, and how a LoRA adapter gets into it.

Invariants: the model that was handed in is never changed, neither its modules nor its weights nor its configuration:
the engine works on a copy of the modules that shares the weight tensors. A merged weight is always W0 + scale * B A of
the pristine W0; nothing is ever un-merged, so no rounding piles up.
"""

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
from agents.model import adapter_io
from agents.model.attention.onednn_linear import WideLinear, by_columns, usable, widen
from agents.model.lean_layers import make_lean
from agents.model.lora import multiply_in_base_type
from agents.model.lora_linear import in_one_pass
from agents.text.errors import ModelError

MERGE_UP_TO = 1_000_000_000
"""Parameters up to which float32 models run with the adapter merged into a second copy of the adapted weights."""
PACK_UP_TO = 100_000_000
"""Parameters up to which a CPU engine keeps a copy of its linear layers in the order that is fastest to multiply."""
_KEPT_INITIALISATIONS = (True, False, "gaussian", "orthogonal")


def small(model: PreTrainedModel) -> bool:
    """Whether a second copy of the model's weights may be kept."""
    return sum(p.numel() for p in model.parameters()) <= PACK_UP_TO


def shared_copy(model: PreTrainedModel) -> PreTrainedModel:
    """New modules and configuration around the same weight tensors, without any adapter, ready for the slot cache."""
    memo: dict[int, Any] = {id(p): p for p in model.parameters()}
    twin = copy.deepcopy(model, memo)
    for name, module in list(twin.named_modules()):
        if isinstance(module, AuxiliaryTrainingWrapper):
            raise ModelError(f"{name}: modules trained beside LoRA (modules_to_save) cannot be taken over")
        if isinstance(module, BaseTunerLayer):
            if module.merged:
                raise ModelError(f"{name}: the adapter is merged into the base weights; unmerge it first")
            parent, _, child = name.rpartition(".")
            setattr(twin.get_submodule(parent), child, module.get_base_layer())
    if hasattr(twin, "peft_config"):
        del twin.peft_config
    twin.eval()
    if twin.is_gradient_checkpointing:
        twin.gradient_checkpointing_disable()
    twin.set_attn_implementation(NAME)
    make_lean(twin)
    widen(twin, packs=small(twin) and twin.device.type == "cpu")
    return twin


def plain(lora: LoraConfig) -> bool:
    """The adapter is W0 + scale * B A and nothing else."""
    return not (lora.use_dora or lora.lora_bias or lora.bias != "none" or lora.modules_to_save)


class PolicyWeights:
    """``model`` is what the engine calls; ``load`` changes its policy.

    A PeftModel brings its LoRA configuration and its present adapter along. Raises ModelError for what cannot be run.
    """

    def __init__(
        self, model: PreTrainedModel | PeftModel, lora: LoraConfig | None, merge: bool | None, device: torch.device
    ) -> None:
        start: dict[str, Tensor] | None = None
        if isinstance(model, PeftModel):
            if lora is not None or len(model.peft_config) != 1:
                raise ModelError("a PeftModel must have one adapter and comes with its own LoRA configuration")
            lora = next(iter(model.peft_config.values()))
            if not isinstance(lora, LoraConfig):
                raise ModelError(f"only LoRA adapters can be run, not {type(lora).__name__}")
            start = get_peft_model_state_dict(model, save_embedding_layers=False)
            model = model.get_base_model()
        elif any(isinstance(m, BaseTunerLayer) for m in model.modules()):
            raise ModelError("this model has an adapter in its layers: hand in the PeftModel around it")
        self._base = model if model.device == device else copy.deepcopy(model).to(device)
        self.parameters = sum(p.numel() for p in shared_copy(self._base).parameters())
        self.model = shared_copy(self._base)
        self._adapter: PeftModel | None = None
        self._merged: list[tuple[LoraLayer, nn.Parameter]] = []
        self._own: dict[str, nn.Parameter] = {}
        self.how = "no LoRA"
        if lora is not None:
            self._adapt(lora, merge)
            self.load(start)

    def _adapt(self, lora: LoraConfig, merge: bool | None) -> None:
        if lora.init_lora_weights not in _KEPT_INITIALISATIONS:
            raise ModelError(f"init_lora_weights={lora.init_lora_weights!r} changes the base weights; use True")
        weights = list(self.model.parameters())
        if merge is None:
            merge = self.parameters <= MERGE_UP_TO and all(p.dtype == torch.float32 for p in weights) and plain(lora)
        elif merge and not all(p.is_floating_point() for p in weights):
            raise ModelError("quantised weights cannot be merged: leave merge out")
        elif merge and not plain(lora):
            raise ModelError("merge=True needs plain LoRA: no DoRA, no biases, no modules_to_save")
        devices = sorted({p.device for p in weights if p.device.type == "cuda"}, key=str)
        with torch.random.fork_rng(devices):  # the fresh adapter draws numbers that are overwritten anyway
            body = shared_copy(self._base) if merge else self.model
            self._adapter = get_peft_model(body, copy.deepcopy(lora))
        if plain(lora):  # as the trainer does
            multiply_in_base_type(self._adapter)
            in_one_pass(self._adapter)
        self._adapter.eval()
        layers = {n: m for n, m in self._adapter.get_base_model().named_modules() if isinstance(m, LoraLayer)}
        self.how = f"LoRA on {len(layers)} layers, unmerged"
        if merge:
            self.how = f"LoRA merged into own copies of {len(layers)} weights"
            for name, layer in layers.items():
                module = self.model.get_submodule(name)
                weight = layer.get_base_layer().weight.detach().clone()
                if isinstance(module, WideLinear) and module.packs and not usable():
                    weight = by_columns(weight)  # so the layer keeps no other copy
                module.weight = nn.Parameter(weight, requires_grad=False)
                self._merged.append((layer, module.weight))

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor] | bytes | None) -> None:
        """Takes an adapter as peft's ``get_peft_model_state_dict`` gives it, or safetensors bytes of it.

        Without LoRA: all parameters by name, which from then on are the engine's own. None is the base model. Names
        that begin with "value_head." are left out. Raises ModelError when a tensor is missing, unknown or of another
        shape; the policy is then as before.
        """
        if state is None:
            if self._adapter is not None and not self._merged:
                self._adapter.base_model.disable_adapter_layers()
            for layer, weight in self._merged:
                weight.copy_(layer.get_base_layer().weight)
            for name, parameter in self._own.items():
                parameter.copy_(self._base.get_parameter(name))
            return
        tensors = safetensors.torch.load(state) if isinstance(state, bytes) else state
        policy = adapter_io.split(tensors)[0]
        if self._adapter is None:
            adapter_io.compare(dict(self.model.named_parameters()), policy)
            if not self._own:
                self.model = copy.deepcopy(self.model)
                self._own = dict(self.model.named_parameters())
                self.how = "no LoRA, own weights"
            for name, parameter in self._own.items():
                parameter.copy_(policy[name])
            return
        adapter_io.compare(get_peft_model_state_dict(self._adapter, save_embedding_layers=False), policy)
        set_peft_model_state_dict(self._adapter, policy)
        if not self._merged:
            self._adapter.base_model.enable_adapter_layers()
        for layer, weight in self._merged:
            weight.copy_(layer.get_base_layer().weight + layer.get_delta_weight(layer.active_adapters[0]))
