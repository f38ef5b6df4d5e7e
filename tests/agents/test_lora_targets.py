"""``--lora.targets auto``: the linear layers of the decoder's own blocks, in any architecture."""

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3Config,
    GPT2Config,
    GPTNeoXConfig,
    Phi3Config,
    PretrainedConfig,
    Qwen3Config,
    Qwen3MoeConfig,
)

from agents.model.actor_critic import ActorCritic
from agents.model.lora import block_linears
from agents.model.settings import LoraSettings
from agents.text.errors import ModelError

GATED = ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]


def of(config: PretrainedConfig) -> torch.nn.Module:
    inner = config.get_text_config(decoder=True)
    inner.num_hidden_layers = 2
    if getattr(inner, "layer_types", None):
        inner.layer_types = inner.layer_types[:2]
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (Qwen3Config(), GATED),
        (GPT2Config(), ["c_attn", "c_fc", "c_proj"]),
        (GPTNeoXConfig(), ["dense", "dense_4h_to_h", "dense_h_to_4h", "query_key_value"]),
        (Phi3Config(), ["down_proj", "gate_up_proj", "o_proj", "qkv_proj"]),
        (Qwen3MoeConfig(), ["k_proj", "o_proj", "q_proj", "v_proj"]),
    ],
    ids=lambda x: type(x).__name__,
)
def test_the_layers_are_found(config: PretrainedConfig, expected: list[str]) -> None:
    assert block_linears(of(config)) == expected  # type: ignore[arg-type]


def test_layers_of_the_same_name_elsewhere_are_left_out() -> None:
    names = block_linears(of(Gemma3Config()))  # type: ignore[arg-type]
    assert len(names) == 2 * len(GATED)
    assert all("language_model" in name and "vision" not in name for name in names)


def small(**more: int) -> Qwen3Config:
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    return Qwen3Config(**shape, num_key_value_heads=1, head_dim=16, vocab_size=60, **more)


def test_they_are_trained_and_said() -> None:
    actor = ActorCritic(AutoModelForCausalLM.from_config(small()), LoraSettings(targets="auto"))
    assert f"LoRA (auto: {', '.join(GATED)})" in actor.summary()
    same = ActorCritic(AutoModelForCausalLM.from_config(small()), LoraSettings())
    assert "auto" not in same.summary()
    assert [p.shape for p in actor.policy_parameters()] == [p.shape for p in same.policy_parameters()]


def test_a_model_without_blocks_is_refused() -> None:
    model = AutoModelForCausalLM.from_config(small())
    for name, module in list(model.model.layers.named_modules()):
        if isinstance(module, torch.nn.Linear):
            parent, _, child = name.rpartition(".")
            setattr(model.model.layers.get_submodule(parent), child, torch.nn.Identity())
    with pytest.raises(ModelError, match="no linear layers in blocks"):
        block_linears(model)
