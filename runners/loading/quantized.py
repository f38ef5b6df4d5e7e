"""Frozen weights in 4 or 8 bits, by bitsandbytes.

Invariant: only weights are rounded. A row's result depends on that row alone and is computed in the model's own type,
as with weights that were never quantised, so rollout and training agree as they do there. Two ways of bitsandbytes
would break that, and are not taken: int8 kernels that round activations too, and 4-bit weights that a processor
reorders in place at the first call without gradient, under the feet of whoever shares them.

Legend: N rows, I and O features in and out.
"""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear
from transformers import BitsAndBytesConfig, PreTrainedModel

from runners.command_line.errors import UserError


def loading(kind: str, device: torch.device) -> dict[str, Any]:
    """What ``from_pretrained`` is told. Raises UserError where bitsandbytes is missing or does not serve the device."""
    if kind == "none":
        return {}
    if find_spec("bitsandbytes") is None:
        raise UserError(f"--quantize {kind} needs bitsandbytes: pip install 'turnwise[quantize]'")
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"--quantize {kind} runs on cpu and cuda, not on {device.type}: leave it out")
    four = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
    how = BitsAndBytesConfig(**(four if kind == "nf4" else {"load_in_8bit": True}))
    return {"quantization_config": how, "device_map": {"": device}}


def is_quantized(model: nn.Module) -> bool:
    """Whether some of the weights are whole numbers."""
    return any(not p.is_floating_point() for p in model.parameters())


def settle(model: PreTrainedModel) -> None:
    """Makes the layers compute as this file says."""
    import bitsandbytes

    for module in model.modules():
        if type(module) is bitsandbytes.nn.Linear8bitLt:
            module.forward = _Int8Forward(module)
        elif isinstance(module, bitsandbytes.nn.Linear4bit):
            module.support_avx512bf16_for_cpu = False
            module.compute_dtype, module.compute_type_is_set = model.dtype, True


class _Int8Forward:
    """``forward`` of an int8 layer; a copy of the layer gets one of its own."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __call__(self, x: Tensor) -> Tensor:
        weight = self.module.weight
        return _Int8.apply(x, weight.data, weight.SCB, self.module.bias)


class _Int8(torch.autograd.Function):
    """x W^T + b for W = whole numbers * scale / 127 of each output feature; W is made again for the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_OI: Tensor, scale_O: Tensor, bias_O: Tensor | None) -> Tensor:
        ctx.save_for_backward(weight_OI, scale_O)
        return linear(x, _wide(weight_OI, scale_O, x.dtype), None if bias_O is None else bias_O.to(x.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        weight_OI, scale_O = ctx.saved_tensors
        return grad @ _wide(weight_OI, scale_O, grad.dtype), None, None, None


def _wide(weight_OI: Tensor, scale_O: Tensor, dtype: torch.dtype) -> Tensor:
    return weight_OI.to(dtype) * (scale_O.view(-1, 1) / 127).to(dtype)
