"""Base models: a Hugging Face folder, a hub name or the tiny model, loaded with tokenizer and chat template."""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

import torch
from peft import PeftModel
from rich.console import Console
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast
from transformers.utils import logging as hf_logging

from agent_envs.core import TextEnv
from agents.model.actor_critic import ActorCritic
from agents.model.attention.onednn_linear import widen
from agents.model.settings import LoraSettings
from agents.text.chat import Chat
from agents.text.settings import ChatSettings
from runners.cloning.settings import TINY, PretrainSettings
from runners.cloning.tiny_model import ensure_tiny
from runners.command_line.errors import UserError


@dataclass(frozen=True)
class BaseSpec:
    """Everything a base model is made from; another process makes a bit-identical one from it."""

    source: str
    """Hugging Face folder or hub name."""
    device: str
    dtype: str
    chat: ChatSettings
    merged: tuple[tuple[LoraSettings, str], ...] = ()
    """Adapters of earlier runs, by settings and checkpoint folder, that became part of the weights, in this order."""


@dataclass(frozen=True)
class Base:
    """A loaded base model, before LoRA."""

    model: PreTrainedModel
    chat: Chat
    source: str
    """Folder or hub name it was loaded from."""

    @property
    def fingerprint(self) -> str:
        """Hash of all weights by name: an adapter and a KL divergence belong to this very model."""
        result = hashlib.sha256()
        for name, tensor in sorted(self.model.state_dict().items()):
            result.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
            result.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        return result.hexdigest()


def source_of(model: str, env: TextEnv, pretrain: PretrainSettings | None, console: Console) -> str:
    """Folder or hub name that ``--model`` names; the tiny model is made first where it is missing."""
    return str(ensure_tiny(env, pretrain or PretrainSettings(), console)) if model == TINY else model


def device_of(name: str) -> torch.device:
    """``auto`` is the first GPU if there is one. Raises UserError for a device that torch does not have."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.zeros(1, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"--device {name}: {str(error).splitlines()[0]}") from None


def load_base(spec: BaseSpec) -> Base:
    """Loads a Hugging Face folder (or hub name) with its tokenizer and chat template. Raises UserError."""
    hf_logging.disable_progress_bar()
    source, device = spec.source, device_of(spec.device)
    if not Path(source).is_dir() and not _hub_name(source):
        raise UserError(f"no model at {source!r}: give tiny, a Hugging Face folder or, to be evaluated, a run folder")
    try:
        tokenizer = _tokenizer(source)
        model = AutoModelForCausalLM.from_pretrained(source, dtype=spec.dtype, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"cannot load the model {source!r}: {str(error).strip().splitlines()[0]}") from None
    model = model.to(device).eval()
    widen(model)
    for lora, checkpoint in spec.merged:
        actor = ActorCritic(model, lora, critic=None)
        actor.load(checkpoint)
        assert isinstance(actor.model, PeftModel)
        model = actor.model.merge_and_unload().eval()
    return Base(model, Chat(tokenizer, spec.chat), source)


def _hub_name(source: str) -> bool:
    return source.count("/") == 1 and not source.startswith((".", "/", "~")) and not os.environ.get("HF_HUB_OFFLINE")


def _tokenizer(source: str) -> PreTrainedTokenizerFast:
    """The tokenizer as it was saved.

    AutoTokenizer replaces a generic tokenizer by the class that usually goes with the model's architecture, which
    splits text in another way; a folder that names the generic class is therefore read with it.
    """
    config = Path(source) / "tokenizer_config.json"
    if config.is_file():
        name = json.loads(config.read_text("utf-8")).get("tokenizer_class")
        if name in ("PreTrainedTokenizerFast", "TokenizersBackend"):
            return PreTrainedTokenizerFast.from_pretrained(source)
    return AutoTokenizer.from_pretrained(source, trust_remote_code=False)
