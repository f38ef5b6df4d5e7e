"""Adapters, in memory and on disk.

Invariant: what is saved and loaded again is bit-identical; a file that does not fit is refused, never half loaded.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import torch
from peft import LoraConfig, PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from agents.text.errors import ModelError

Model: TypeAlias = PeftModel | PreTrainedModel
"""A PeftModel, whose adapter is trained, or a model that is trained as a whole."""
HEAD = "value_head."
"""How the names of a value head's tensors begin."""
HEAD_FILE = "value_head.safetensors"
"""What a checkpoint keeps of a value head, beside the adapter."""


class Adapted(nn.Module):
    """A model with what training changes of it: how that is copied, saved and taken back."""

    model: Model
    value_head: nn.Sequential | None
    """None: there is no value head, or it was removed."""

    def adapter_state(self) -> dict[str, Tensor]:
        """All that training changes, by name, copied: LoRA (or the whole model) and ``value_head.*``."""
        if isinstance(self.model, PeftModel):
            named = get_peft_model_state_dict(self.model, save_embedding_layers=False)
        else:
            named = dict(self.model.named_parameters())  # tied weights appear once
        head = {} if self.value_head is None else {HEAD + k: v for k, v in self.value_head.state_dict().items()}
        return {k: v.detach().clone() for k, v in {**named, **head}.items()}

    def policy_state(self) -> dict[str, Tensor]:
        """The policy's part of ``adapter_state``: what an engine loads."""
        return split(self.adapter_state())[0]

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Copies what ``adapter_state`` gave, all of it or nothing. A removed value head takes no value head.

        Raises ModelError when names or shapes differ.
        """
        policy, value = split(state)
        compare(self.adapter_state(), policy if self.value_head is None else state)
        if isinstance(self.model, PeftModel):
            set_peft_model_state_dict(self.model, policy)
        else:
            with torch.no_grad():
                for name, parameter in self.model.named_parameters():
                    parameter.copy_(policy[name])
        if self.value_head is not None:
            self.value_head.load_state_dict(value)

    def save(self, folder: str | Path) -> None:
        """An adapter that PEFT itself can load (or the whole model, without LoRA), and the value head beside it."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if isinstance(self.model, PeftModel):
            # "auto" would look the base model up on the network to see whether its vocabulary grew.
            self.model.save_pretrained(folder, save_embedding_layers=False)
        else:
            self.model.save_pretrained(folder)
        if self.value_head is not None:
            write(self.value_head.state_dict(), folder / HEAD_FILE)

    def load(self, folder: str | Path) -> None:
        """Takes what ``save`` wrote. Raises ModelError when it belongs to another model or other settings."""
        name = "adapter_model.safetensors" if isinstance(self.model, PeftModel) else "model.safetensors"
        new = read(Path(folder) / name)
        if self.value_head is not None:
            new |= {HEAD + k: v for k, v in read(Path(folder) / HEAD_FILE).items()}
        self.load_state(new)


def split(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """(the policy's tensors, those of the value head without their prefix)."""
    policy = {k: v for k, v in tensors.items() if not k.startswith(HEAD)}
    return policy, {k.removeprefix(HEAD): v for k, v in tensors.items() if k.startswith(HEAD)}


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


def write(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Tensors by name as safetensors."""
    save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, path)


def write_lora(lora: LoraConfig, policy: Mapping[str, Tensor], folder: Path) -> None:
    """An adapter as other programs read it: its configuration and its tensors."""
    lora.save_pretrained(folder)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in policy.items()}
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})


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
