"""Adapters on disk and on the wire.

Invariant: what is saved and loaded again is the same bits; a file that does not fit is refused, never half loaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load as parse
from safetensors.torch import load_file, save_file
from safetensors.torch import save as serialise
from torch import Tensor

from agents.text.errors import ModelError

if TYPE_CHECKING:
    from agents.model.actor_critic import ActorCritic

HEAD = "value_head."
HEAD_FILE = "value_head.safetensors"
"""What a checkpoint keeps of a value head, beside the adapter."""


def state(model: ActorCritic) -> dict[str, Tensor]:
    """Copies of all trained tensors by name."""
    return {**_policy(model), **{HEAD + k: v.detach().clone() for k, v in _head(model).items()}}


def _policy(model: ActorCritic) -> dict[str, Tensor]:
    if isinstance(model.model, PeftModel):
        named = get_peft_model_state_dict(model.model, save_embedding_layers=False)
    else:
        named = dict(model.model.named_parameters())  # tied weights appear once
    return {k: v.detach().clone() for k, v in named.items()}


def _head(model: ActorCritic) -> dict[str, Tensor]:
    return {} if model.value_head is None else model.value_head.state_dict()


def load_state(model: ActorCritic, new: Mapping[str, Tensor]) -> None:
    """Copies ``new`` into the model, all of it or nothing. A removed value head takes no value head."""
    if model.value_head is None:
        new = {k: v for k, v in new.items() if not k.startswith(HEAD)}
    old = state(model)
    compare(old, new)
    policy = {k: v for k, v in new.items() if not k.startswith(HEAD)}
    if isinstance(model.model, PeftModel):
        set_peft_model_state_dict(model.model, policy)
    else:
        with torch.no_grad():
            for name, parameter in model.model.named_parameters():
                parameter.copy_(policy[name])
    if model.value_head is not None:
        model.value_head.load_state_dict({k.removeprefix(HEAD): v for k, v in new.items() if k.startswith(HEAD)})


def compare(old: Mapping[str, Tensor], new: Mapping[str, Tensor]) -> None:
    """Raises ModelError, naming the first tensor that is missing, unknown or of another shape."""
    odd = sorted(old.keys() ^ new.keys())
    if odd:
        whose = "is missing in the file" if odd[0] in old else "is not part of this model"
        raise ModelError(
            f"the adapter does not fit: {odd[0]} {whose} ({len(odd)} such); same model, same LoRA targets?"
        )
    for name, tensor in old.items():
        if new[name].shape != tensor.shape:
            sizes = f"{tuple(new[name].shape)}, here {tuple(tensor.shape)}"
            raise ModelError(f"the adapter does not fit: {name} has the shape {sizes}; same LoRA rank, same model?")


def to_bytes(model: ActorCritic) -> tuple[bytes, str]:
    """safetensors bytes of all trained tensors, and their sha256."""
    data = serialise({k: v.cpu().contiguous() for k, v in state(model).items()})
    return data, hashlib.sha256(data).hexdigest()


def from_bytes(model: ActorCritic, data: bytes) -> None:
    """The other direction."""
    try:
        new = parse(data)
    except SafetensorError as error:
        raise ModelError(f"these bytes are no adapter: {error}") from error
    load_state(model, new)


def save(model: ActorCritic, folder: Path) -> None:
    """Writes an adapter that PEFT itself can load, and the value head beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(model.model, PeftModel):
        # "auto" would look the base model up on the network to see whether its vocabulary grew.
        model.model.save_pretrained(folder, save_embedding_layers=False)
    else:
        model.model.save_pretrained(folder)
    if model.value_head is not None:
        write(_head(model), folder / HEAD_FILE)


def load(model: ActorCritic, folder: Path) -> None:
    """Reads what ``save`` wrote."""
    name = "adapter_model.safetensors" if isinstance(model.model, PeftModel) else "model.safetensors"
    new = read(folder / name)
    if model.value_head is not None:
        new |= {HEAD + k: v for k, v in read(folder / HEAD_FILE).items()}
    load_state(model, new)


def write(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Tensors by name as safetensors."""
    save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, path)


def read(path: Path) -> dict[str, Tensor]:
    """The other direction. Raises ModelError when the file is missing or cut short."""
    try:
        return load_file(path)
    except FileNotFoundError as error:
        raise ModelError(
            f"{path} is missing: name a folder that a run saved, with the same kind of training"
        ) from error
    except SafetensorError as error:
        raise ModelError(f"{path} cannot be read ({error}): it was cut short or is another format") from error
