"""Base models: a Hugging Face folder, a hub name or the tiny model, with tokenizer, chat template, and what is trained
on top of them."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from rich.console import Console
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast
from transformers.utils import logging as hf_logging

from agent_envs.core import TextEnv
from agents.model.actor_critic import ActorCritic
from agents.model.attention.onednn_linear import widen
from agents.model.separate_critic import SeparateActorCritic
from agents.model.settings import CriticSettings, LoraSettings, SeparateCriticSettings
from agents.text.chat import Chat
from agents.text.settings import ChatSettings, Tools
from runners.cloning.settings import TINY, PretrainSettings
from runners.cloning.tiny_model import ensure_tiny
from runners.command_line.errors import UserError, out_of_memory
from runners.loading.allocator import LARGE, give_back
from runners.loading.quantized import loading, settle
from runners.loading.reproducible import prepare, reproducible
from runners.settings.pretrained import config_file
from runners.settings.run_settings import RunSettings


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
    quantize: str = "none"


@dataclass(frozen=True)
class Base:
    """A loaded base model, before LoRA."""

    model: PreTrainedModel
    chat: Chat
    source: str
    """Folder or hub name it was loaded from."""
    origin: str | None = None
    """Fingerprint of what it was made of, where adapters were merged into it."""

    @property
    def fingerprint(self) -> str:
        """Hash of all weights by name: an adapter and a KL divergence belong to this very model.

        Merged weights are known by what was merged, for processors round a merge differently.
        """
        return self.origin or fingerprint(self.model.state_dict())

    def is_known_as(self, known: str) -> bool:
        """Whether ``known`` is its fingerprint, or the hash of its merged weights, which earlier versions recorded."""
        return known == self.fingerprint or (self.origin is not None and known == fingerprint(self.model.state_dict()))


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """Hash of tensors by name."""
    result = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        result.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        result.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return result.hexdigest()


def source_of(
    model: str, envs: Sequence[TextEnv], pretrain: PretrainSettings | None, chat: ChatSettings, console: Console
) -> str:
    """Folder or hub name that ``--model`` names; the tiny model is made first where it is missing. Raises UserError."""
    for env in envs:
        if chat.tools is Tools.ON and not env.grammar.verbs:
            raise UserError(f"--chat.tools on: the environment {env.name} has no actions that could be tools")
    return str(ensure_tiny(envs, pretrain or PretrainSettings(), console, chat.tools)) if model == TINY else model


def device_of(name: str) -> torch.device:
    """``auto`` is the first GPU if there is one. Raises UserError for a device that torch does not have."""
    if name.partition(":")[0] == "meta":
        raise UserError("--device meta holds no numbers: name a device that computes")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.zeros(1, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"--device {name}: {str(error).splitlines()[0]}") from None


def load_base(spec: BaseSpec, console: Console | None = None) -> Base:
    """Loads a Hugging Face folder (or hub name) with its tokenizer and chat template, and shows what is to be known of
    that template. Raises UserError."""
    hf_logging.disable_progress_bar()
    source, device = spec.source, device_of(spec.device)
    prepare(device)
    if not Path(source).is_dir() and not _hub_name(source):
        raise UserError(f"no model at {source!r}: give tiny, a Hugging Face folder or, to be evaluated, a run folder")
    if isinstance(why := config_file(source), str):
        fix = (
            ", so it is not a model's (what a run learned is trained further with --init-from RUN)"
            if Path(source).is_dir()
            else "; check the name and the connection, and log in to the hub where the model is not open to all"
        )
        raise UserError(f"cannot load the model {source!r}: {why}{fix}")
    try:
        tokenizer = _tokenizer(source)
        chat = Chat(tokenizer, spec.chat)
        model = _model(source, spec.dtype, **loading(spec.quantize, device))
    except (UserError, MemoryError):
        raise
    except Exception as error:  # the files may be anybody's, and the code that reads them raises what it likes
        if out_of_memory(error):
            raise
        raise UserError(f"cannot load the model {source!r}: {' '.join(str(error).split()):.300}") from None
    check_weights(model, len(tokenizer), source)
    if spec.quantize == "none":
        model = model.to(device)
    else:
        settle(model)
    model.eval()
    widen(model)
    if device.type == "cpu" and sum(p.numel() for p in model.parameters()) >= LARGE:
        give_back()
    origin = fingerprint(model.state_dict()) if spec.merged else None
    for lora, checkpoint in spec.merged:
        actor = ActorCritic(model, lora, critic=None)
        actor.load(checkpoint)
        adapter = f"{fingerprint(actor.policy_state())} {lora.alpha:g}"
        origin = hashlib.sha256(f"{origin} {adapter}".encode()).hexdigest()
        assert isinstance(actor.model, PeftModel)
        model = actor.model.merge_and_unload().eval()
    if console is not None:
        for note in chat.layout.notes:
            console.print(f"chat: {note}", highlight=False, markup=False, soft_wrap=True)
    return Base(model, chat, source, origin)


def _model(source: str, dtype: str, **how: Any) -> PreTrainedModel:
    """The model, all of whose weights are in the files, loaded as ``how`` says. Raises UserError."""
    level = hf_logging.get_verbosity()
    hf_logging.set_verbosity(hf_logging.CRITICAL)  # what it reports in a table is said in one line here
    try:
        model, loaded = AutoModelForCausalLM.from_pretrained(
            source, dtype=dtype, trust_remote_code=False, output_loading_info=True, ignore_mismatched_sizes=True, **how
        )
    finally:
        hf_logging.set_verbosity(level)
    for what, names in (("are missing", loaded["missing_keys"]), ("have other shapes", loaded["mismatched_keys"])):
        if names:
            first = min(name if isinstance(name, str) else name[0] for name in names)
            raise UserError(f"the model {source!r} is damaged: {len(names)} of its weights {what}, as {first}")
    return model


def actor_of(base: Base, settings: RunSettings) -> tuple[ActorCritic, tuple[int, ...] | None]:
    """A run's model before its first update, on top of ``base``; and the tokens of its critic prompt, None where no
    value head reads one."""
    critic = settings.critic
    prompt = base.chat.critic_prompt(critic.prompt) if isinstance(critic, CriticSettings) else None
    return actor_on(base.model, settings), prompt


def actor_on(model: PreTrainedModel, settings: RunSettings) -> ActorCritic:
    """The same without a chat."""
    train, lora, critic = settings.train, settings.lora, settings.critic
    how: dict[str, Any] = {
        "temperature": train.temperature,
        "seed": train.seed,
        "checkpointing": train.gradient_checkpointing,
        "attention": train.attention,
    }
    with reproducible(model.device):  # as the learner's passes: kernels that were compiled otherwise do not count there
        if isinstance(critic, SeparateCriticSettings):
            return SeparateActorCritic(model, lora, critic, **how)
        return ActorCritic(model, lora, critic, **how)


def check_weights(model: PreTrainedModel, tokens: int, source: str) -> None:
    """Raises UserError for a model with fewer rows than its tokenizer has tokens, or weights that are not finite."""
    rows = model.get_input_embeddings().num_embeddings
    if rows < tokens:
        raise UserError(
            f"the model {source!r} has {rows} embeddings, its tokenizer {tokens} tokens: they do not belong together"
        )
    for name, weight in model.named_parameters():
        if not torch.isfinite(weight).all():
            raise UserError(f"the model {source!r} holds NaN or infinity in {name}: it is damaged, load another")


def _hub_name(source: str) -> bool:
    return source.count("/") == 1 and not source.startswith((".", "/", "~")) and not os.environ.get("HF_HUB_OFFLINE")


def _tokenizer(source: str) -> PreTrainedTokenizerFast:
    """The tokenizer as it was saved.

    AutoTokenizer replaces a generic tokenizer by the class that usually goes with the model's architecture, which
    splits text in another way; a folder that names the generic class is therefore read with it.
    """
    config = Path(source) / "tokenizer_config.json"
    if config.is_file():
        values = json.loads(config.read_text("utf-8"))
        if not isinstance(values, dict):
            raise ValueError(f"{config} holds no settings by name")
        if values.get("tokenizer_class") in ("PreTrainedTokenizerFast", "TokenizersBackend"):
            return PreTrainedTokenizerFast.from_pretrained(source)
    return AutoTokenizer.from_pretrained(source, trust_remote_code=False)
