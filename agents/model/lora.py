"""LoRA on a base model.

Invariant: optimiser and checkpoints see float32 matrices, also on a base in bfloat16. There they are multiplied in the
base's type: PEFT by itself would copy every input to float32 and keep the copies for the backward pass.
"""

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import Linear
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.pytorch_utils import Conv1D

from agents.model.lora_linear import in_one_pass
from agents.model.settings import LoraSettings
from agents.text.errors import ModelError

ALL_LINEAR, AUTO = "all-linear", "auto"


def with_lora(model: PreTrainedModel, lora: LoraSettings) -> PeftModel:
    """``model`` with an adapter that adds nothing yet. Raises ModelError for settings that do not fit the model."""
    if lora.targets == ALL_LINEAR:
        targets: str | list[str] = ALL_LINEAR
    else:
        targets = block_linears(model) if lora.targets == AUTO else _found(model, lora.targets)
    config = LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha, lora_dropout=0.0, target_modules=targets, task_type="CAUSAL_LM"
    )
    try:
        adapted = get_peft_model(model, config)
    except ValueError as error:
        raise ModelError(f"--lora.targets {lora.targets}: {str(error).splitlines()[0]}") from error
    multiply_in_base_type(adapted)
    in_one_pass(adapted)
    return adapted


def block_linears(model: PreTrainedModel) -> list[str]:
    """What ``auto`` adapts: the linear layers inside the decoder's blocks, without a head, an embedding or a router.

    Last parts of their names where those mean nothing else in the model, and whole names otherwise.
    """
    config = model.config.get_text_config(decoder=True)
    experts = getattr(config, "num_experts", None) or getattr(config, "num_local_experts", None)
    linear = {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear | Conv1D)}
    body = next((n for n, m in model.named_modules() if m is model.get_decoder()), "")
    blocks = [
        f"{name}."
        for name, module in model.named_modules()
        if isinstance(module, GradientCheckpointingLayer) and f"{name}.".startswith(f"{body}." if body else "")
    ]
    mine = [
        name
        for name, module in linear.items()
        if name.startswith(tuple(blocks)) and not (experts and getattr(module, "out_features", None) == experts)
    ]
    if not mine:
        raise ModelError(f"--lora.targets auto: {type(model).__name__} has no linear layers in blocks: name some")
    last = {name.rpartition(".")[2] for name in mine}
    meant = [name for name in linear if name.rpartition(".")[2] in last]
    return sorted(last) if len(meant) == len(mine) else mine


def _found(model: PreTrainedModel, targets: str | tuple[str, ...]) -> list[str]:
    """The names of layers to adapt. Raises ModelError for one that no matrix of the model has."""
    named = [targets] if isinstance(targets, str) else list(targets)
    layers = [n for n, m in model.named_modules() if getattr(getattr(m, "weight", None), "ndim", 0) == 2]
    layers = [name for name in layers if not isinstance(model.get_submodule(name), nn.Embedding)]
    for target in named:
        if not target or not any(f".{name}".endswith(f".{target}") for name in layers):
            known = ", ".join((ALL_LINEAR, AUTO, *sorted({name.rpartition(".")[2] for name in layers})))
            raise ModelError(f"--lora.targets: no layer is called {target!r}; there are {known}")
    if not named:
        raise ModelError("--lora.targets names no layer: leave it out, or name some")
    return named


class MasterLinear(nn.Linear):
    """A linear layer without bias whose weight is rounded to the type of its input in every pass."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight.to(x.dtype))


def multiply_in_base_type(model: nn.Module) -> None:
    """Does so in every LoRA layer of ``model`` whose base is in bfloat16. Others stay as they are: the gradients of
    float16 would be too small for it."""
    for layer in model.modules():
        if isinstance(layer, Linear) and layer.get_base_layer().weight.dtype == torch.bfloat16:
            layer.cast_input_dtype_enabled = False
            for matrices in (layer.lora_A, layer.lora_B):
                for matrix in matrices.values():
                    matrix.__class__ = MasterLinear
