"""The door to attention over token trees: which way of computing it is taken, and the plan of a row for it.

Invariant: every way gives the numbers of dense attention under ``mask.tree_mask``, and a way that cannot train here is
refused; none stands in for another silently.
"""

from importlib.util import find_spec

import torch
from transformers import PreTrainedModel

from agents.compiled import tree_attention
from agents.model.attention import varlen
from agents.model.attention.blocks import TreePlan
from agents.model.attention.compiled import CompiledPlan
from agents.model.attention.flex import LEAST_WIDTH, FlexPlan
from agents.model.attention.interface import RowPlan
from agents.model.attention.varlen import VarlenPlan
from agents.model.settings import Attention
from agents.text.errors import ModelError
from agents.tree import Batch

HALF = (torch.float16, torch.bfloat16)
"""Types that FlashAttention computes in."""


_BECAUSE = {
    Attention.COMPILED: "since the model is on a CPU in float32, and a C compiler made its kernels",
    Attention.FLEX: "since the model is on CUDA; the first update compiles its kernels",
}
"""Why the best way of a device is taken."""


def check(asked: Attention, device: torch.device) -> None:
    """Raises ModelError for a way that cannot train on ``device``."""
    _refuse(asked, _missing(asked, device))


def choose(asked: Attention, model: PreTrainedModel) -> tuple[Attention, str]:
    """(the way that is taken, never ``auto``; why, in a few words). Raises ModelError like ``check``.

    A model on the meta device computes nothing, so any way may be asked for.
    """
    if model.device.type == "meta":
        return Attention.BLOCKS, "since the model has shapes alone"
    if asked != Attention.AUTO:
        _refuse(asked, _missing(asked, model.device) or _unfit(asked, model))
        return asked, "as set"
    best = Attention.COMPILED if model.device.type == "cpu" else Attention.FLEX
    if why_not := _missing(best, model.device) or _unfit(best, model):
        return Attention.BLOCKS, f"since {why_not}"
    return best, _BECAUSE[best]


def plan_of(way: Attention, batch: Batch, device: torch.device) -> RowPlan:
    """How ``way`` computes the attention of a row."""
    if way == Attention.FLEX:
        return FlexPlan(batch.pos_T, batch.end_T, device)
    if way == Attention.VARLEN:
        return VarlenPlan(batch.pos_T, batch.end_T, device)
    plan = CompiledPlan if way == Attention.COMPILED else TreePlan
    return plan(batch.pos_T, batch.end_T, device, by_chains=True)


def _refuse(asked: Attention, why: str) -> None:
    if why:
        raise ModelError(f"--attention {asked}: {why}; set --attention blocks, or leave it out")


def _missing(way: Attention, device: torch.device) -> str:
    """What the machine lacks for this way of computing; empty where nothing is missing."""
    if way == Attention.COMPILED:
        here = device.type == "cpu"
        return tree_attention.missing() if here else f"compiled kernels run on a CPU, and the model is on {device.type}"
    name, package = {
        Attention.FLEX: ("FlexAttention", "triton"),
        Attention.VARLEN: ("FlashAttention", varlen.PACKAGE),
    }.get(way, ("", ""))
    if not name:
        return ""
    if device.type != "cuda":
        return f"{name} trains on CUDA only, and the model is on {device.type}"
    return "" if find_spec(package) else f"{name} needs the package {package}, which is not installed"


def _unfit(way: Attention, model: PreTrainedModel) -> str:
    """What of the model this way cannot compute; empty where there is nothing."""
    config = model.config.get_text_config(decoder=True)
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if way == Attention.FLEX and width < LEAST_WIDTH:
        return f"heads of {width} are narrower than FlexAttention's {LEAST_WIDTH}"
    if way == Attention.COMPILED and model.dtype != torch.float32:
        return f"compiled kernels compute in float32, not in {str(model.dtype).removeprefix('torch.')}"
    if way == Attention.VARLEN and width > varlen.WIDEST:
        return f"heads of {width} are wider than FlashAttention's {varlen.WIDEST}"
    if way == Attention.VARLEN and model.dtype not in HALF:
        return f"FlashAttention computes in bfloat16 or float16, not in {str(model.dtype).removeprefix('torch.')}"
    return ""
