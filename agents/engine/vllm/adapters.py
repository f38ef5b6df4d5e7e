"""The policy inside vLLM: a LoRA adapter that is never the one before.

Invariants: every policy has an id, a name and a path that no other had, because vLLM keeps adapters by id, and keys and
values by name and path; an adapter is tried with ``add_lora`` before a request may name it, because a request with a
bad one would never end. Its files are there only while vLLM reads them.
"""

import copy
import tempfile
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import get_args

import safetensors.torch
from peft import LoraConfig, PeftModel, get_peft_model_state_dict
from torch import Tensor
from transformers import PreTrainedModel
from vllm import LLMEngine
from vllm.config.lora import MaxLoRARanks
from vllm.lora.request import LoRARequest

from agents.engine.vllm.calls import Calls
from agents.engine.vllm.settings import PREFIX
from agents.engine.weights import plain
from agents.model import adapter_io
from agents.text.errors import ModelError


class Adapters:
    """``request`` names the policy in a request to vLLM; None is the base model.

    ``model`` says what an adapter looks like. Raises ModelError where vLLM could not run its adapters.
    """

    def __init__(self, model: PreTrainedModel | PeftModel) -> None:
        self.request: LoRARequest | None = None
        self.numbers = count(1)
        self.lora: LoraConfig | None = None
        self.present: Mapping[str, Tensor] | None = None
        """The model's own adapter."""
        if not isinstance(model, PeftModel):
            return
        self.lora = copy.deepcopy(next(iter(model.peft_config.values())))
        if not isinstance(self.lora, LoraConfig) or not plain(self.lora):
            raise ModelError("vLLM runs plain LoRA only: no other adapters, no DoRA, no biases, no modules_to_save")
        if self.lora.r > max(get_args(MaxLoRARanks)):
            raise ModelError(f"vLLM runs LoRA up to rank {max(get_args(MaxLoRARanks))}, not {self.lora.r}")
        self.present = get_peft_model_state_dict(model, save_embedding_layers=False)
        self.shapes = {name: tensor.to("meta") for name, tensor in self.present.items()}

    @property
    def max_rank(self) -> int:
        """The least that vLLM allows and that holds the adapters."""
        return min(rank for rank in get_args(MaxLoRARanks) if self.lora is not None and rank >= self.lora.r)

    def load(self, vllm: LLMEngine, calls: Calls, state: Mapping[str, Tensor] | bytes | None) -> None:
        """Raises ModelError for an adapter that does not fit; the policy is then as before."""
        new = None
        if state is not None:
            policy = adapter_io.split(safetensors.torch.load(state) if isinstance(state, bytes) else state)[0]
            if self.lora is None:
                raise ModelError("vLLM takes LoRA adapters only, and this model has none: use --engine hf")
            adapter_io.compare(self.shapes, policy)
            number = next(self.numbers)
            with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
                self.write(policy, Path(folder))
                new = LoRARequest(f"policy-{number}", number, folder)
                calls(vllm.add_lora, new)
        if self.request is not None:
            calls(vllm.remove_lora, self.request.lora_int_id)
        self.request = new

    def write(self, policy: Mapping[str, Tensor], folder: Path) -> None:
        assert self.lora is not None
        adapter_io.write_lora(self.lora, policy, folder)
