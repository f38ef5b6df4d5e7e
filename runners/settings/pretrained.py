"""Defaults of a run that begins from a pre-trained model, by its size: those of `Train` are the tiny model's.

Imports no torch: a model's size is read off its config.json.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from runners.cloning.settings import TINY
from runners.command_line.plain import load_yaml


@dataclass(frozen=True)
class Preset:
    """Defaults for models of a size. ``docs/scaling.md`` names the source of each."""

    name: str
    below: float
    """Parameters that a model of this preset does not reach."""
    train: Mapping[str, Any]
    lora: Mapping[str, Any]


def _train(lr: float, episodes: int, token_budget: int, slots: int, dtype: str) -> Mapping[str, Any]:
    sizes = {"episodes": episodes, "token_budget": token_budget, "slots": slots, "eval_tasks": 64, "test_tasks": 100}
    return {"lr": lr, "value_lr": 1e-4, **sizes, "dtype": dtype, "gradient_checkpointing": True}


def _lora(rank: int) -> Mapping[str, Any]:
    return {"rank": rank, "alpha": 32.0, "targets": "auto"}


PRESETS = (
    Preset("below 1B", 1e9, _train(5e-5, 64, 8192, 32, "float32"), _lora(32)),
    Preset("1B to 4B", 3.5e9, _train(4e-5, 128, 8192, 32, "bfloat16"), _lora(32)),
    Preset("4B to 10B", 1e10, _train(4e-5, 128, 8192, 32, "bfloat16"), _lora(32)),
    Preset("above 10B", math.inf, _train(3e-5, 128, 4096, 16, "bfloat16"), _lora(64)),
)
"""From the smallest. A model that is sold as 4B may have a little less than that many parameters."""


def base_of(model: str, init_from: Path | None) -> str | None:
    """The name of the pre-trained base model, that of an earlier run being in its config.yaml; None: the tiny one."""
    for _ in range(100):
        if init_from is None:
            return None if model == TINY else model
        folder = init_from.parent.parent if init_from.parent.name == "checkpoints" else init_from
        try:
            values = load_yaml((folder / "config.yaml").read_text("utf-8"))
            model, before = values["model"], values["init_from"]
        except (OSError, ValueError, TypeError, KeyError, yaml.YAMLError):
            return None  # whoever loads the run says what is wrong with it
        init_from = None if before is None else Path(before)
    return None


def preset_of(model: str, init_from: Path | None) -> Preset | None:
    """The preset of a run's base model; None for the tiny one. That of a model whose size is unknown is the smallest:
    it cannot be loaded either."""
    base = base_of(model, init_from)
    if base is None:
        return None
    size = parameters(base) or 0
    return next(preset for preset in PRESETS if size < preset.below)


def config_file(source: str) -> Path | str:
    """The config.json of a folder, of the hub's cache or of the hub; or why there is none, in one line."""
    if (file := Path(source) / "config.json").is_file():
        return file
    return "the folder holds no config.json" if Path(source).is_dir() else _of_hub(source)


@lru_cache
def _of_hub(name: str) -> Path | str:
    from huggingface_hub import HfApi, hf_hub_download, hf_hub_url, try_to_load_from_cache

    try:
        if isinstance(cached := try_to_load_from_cache(name, "config.json"), str):
            return Path(cached)
        HfApi().get_hf_file_metadata(url=hf_hub_url(name, "config.json"))  # once: a download asks for half a minute
        return Path(hf_hub_download(name, "config.json"))
    except Exception as error:  # of the hub's library, of its network library, of a name that is none
        return f"the hub gave no config.json: {' '.join(str(error).split()):.200}"


@lru_cache
def parameters(source: str) -> int | None:
    """About how many parameters a Hugging Face folder or hub name has; None where its config.json cannot be read."""
    if isinstance(file := config_file(source), str):
        return None
    try:
        config = json.loads(file.read_text("utf-8"))
        return _count(config.get("text_config") or config)
    except Exception:  # files that may be anybody's: whoever loads the model says what is wrong
        return None


def _count(config: Mapping[str, Any]) -> int:
    """Matrices of a decoder with grouped heads and a gated feed-forward part, or as many experts as there are."""

    def known(*names: str, default: int | None = None) -> int:
        found = next((config[name] for name in names if config.get(name)), default)
        if found is None:
            raise ValueError(names)
        return int(found)

    width, heads = known("hidden_size", "n_embd"), known("num_attention_heads", "n_head")
    shared = known("num_key_value_heads", default=heads)
    each = known("head_dim", default=width // heads)
    inner = known("intermediate_size", "n_inner", default=4 * width)
    experts = known("num_experts", "num_local_experts", default=1)
    feed = 3 * width * (known("moe_intermediate_size", default=inner) if experts > 1 else inner) * experts
    layer = 2 * width * each * (heads + shared) + feed
    tables = 1 if config.get("tie_word_embeddings") else 2
    return known("num_hidden_layers", "n_layer") * layer + tables * width * known("vocab_size")


def shown(values: Mapping[str, Any], preset: Preset, base: str, flags: set[str], filed: set[str], file: str) -> str:
    """One line that says, for what the preset decides, which value a run has (``values``) and where it comes from."""
    origin: dict[str, list[str]] = {}
    for name in (*preset.train, *(f"lora.{name}" for name in preset.lora)):
        whence = "flags" if name in flags else file if name in filed else f"preset {preset.name}"
        value = values[name]
        origin.setdefault(whence, []).append(f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}")
    size = parameters(base)
    about = "of unknown size" if size is None else f"of {size / 1e9:.2g}B parameters"
    return f"model {about}: " + "; ".join(f"{', '.join(each)} ({whence})" for whence, each in origin.items())
