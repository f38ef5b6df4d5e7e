"""Adapters on disk and on the wire.

Invariant: what is saved and loaded again is the same bits; a file that does not fit is refused, never half loaded.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import torch
from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load as parse
from safetensors.torch import load_file, save_file
from safetensors.torch import save as serialise
from torch import Tensor, nn
from transformers import PreTrainedModel

from agents.text.errors import ModelError

Model: TypeAlias = PeftModel | PreTrainedModel
"""A PeftModel, whose adapter is trained, or a model that is trained as a whole."""
Head: TypeAlias = nn.Module | None
"""Its value head, where it has one."""
HEAD = "value_head."
"""How the names of a value head's tensors begin."""
HEAD_FILE = "value_head.safetensors"
"""What a checkpoint keeps of a value head, beside the adapter."""


def state(model: Model, head: Head) -> dict[str, Tensor]:
    """Copies of all trained tensors by name."""
    if isinstance(model, PeftModel):
        named = get_peft_model_state_dict(model, save_embedding_layers=False)
    else:
        named = dict(model.named_parameters())  # tied weights appear once
    return {k: v.detach().clone() for k, v in {**named, **_prefixed(head)}.items()}


def _prefixed(head: Head) -> dict[str, Tensor]:
    return {} if head is None else {HEAD + k: v for k, v in head.state_dict().items()}


def split(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """(the policy's tensors, those of the value head without their prefix)."""
    policy = {k: v for k, v in tensors.items() if not k.startswith(HEAD)}
    return policy, {k.removeprefix(HEAD): v for k, v in tensors.items() if k.startswith(HEAD)}


def load_state(model: Model, head: Head, new: Mapping[str, Tensor]) -> None:
    """Copies ``new`` into the model, all of it or nothing. A removed value head takes no value head."""
    policy, value = split(new)
    compare(state(model, head), policy if head is None else new)
    if isinstance(model, PeftModel):
        set_peft_model_state_dict(model, policy)
    else:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(policy[name])
    if head is not None:
        head.load_state_dict(value)


def compare(old: Mapping[str, Tensor], new: Mapping[str, Tensor]) -> None:
    """Raises ModelError, naming the first tensor that is missing, unknown or of another shape."""
    odd = sorted(old.keys() ^ new.keys())
    if odd:
        whose = "is missing in the file" if odd[0] in old else "is not part of this model"
        raise ModelError(
            f"the adapter does not fit: {odd[0]} {whose} ({len(odd)} in all); same model, same LoRA targets?"
        )
    for name, tensor in old.items():
        if new[name].shape != tensor.shape:
            sizes = f"{tuple(new[name].shape)}, here {tuple(tensor.shape)}"
            raise ModelError(f"the adapter does not fit: {name} has the shape {sizes}; same LoRA rank, same model?")


def to_bytes(model: Model, head: Head) -> tuple[bytes, str]:
    """safetensors bytes of all trained tensors, and their sha256."""
    data = serialise({k: v.cpu().contiguous() for k, v in state(model, head).items()})
    return data, hashlib.sha256(data).hexdigest()


def from_bytes(model: Model, head: Head, data: bytes) -> None:
    """The other direction."""
    try:
        new = parse(data)
    except SafetensorError as error:
        raise ModelError(f"these bytes are not an adapter: {error}") from error
    load_state(model, head, new)


def save(model: Model, head: Head, folder: Path) -> None:
    """Writes an adapter that PEFT itself can load, and the value head beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(model, PeftModel):
        # "auto" would look the base model up on the network to see whether its vocabulary grew.
        model.save_pretrained(folder, save_embedding_layers=False)
    else:
        model.save_pretrained(folder)
    if head is not None:
        write(head.state_dict(), folder / HEAD_FILE)


def load(model: Model, head: Head, folder: Path) -> None:
    """Reads what ``save`` wrote."""
    name = "adapter_model.safetensors" if isinstance(model, PeftModel) else "model.safetensors"
    new = read(folder / name)
    if head is not None:
        new |= {HEAD + k: v for k, v in read(folder / HEAD_FILE).items()}
    load_state(model, head, new)


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
