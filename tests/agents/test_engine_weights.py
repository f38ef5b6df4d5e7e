"""Adapters in the engine: the trainer's numbers, no drift, and a clear no to what does not fit."""

import pytest
import torch
from engine_cases import SIZE, STOP, Session, engine_of, largest_error, model, one
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors.torch import save
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GptOssConfig,
    LlamaConfig,
    MambaConfig,
    PreTrainedModel,
    Qwen3NextConfig,
)

from agents.engine import Request
from agents.engine.hf import HFEngine
from agents.text.errors import ModelError

LORA = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear")
PROMPT = (9, 8, 7, 6, 5, 10, 11)


def trained(seed: int, family: str = "qwen2") -> PeftModel:
    """A LoRA that changes the output a lot."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        wrapped = get_peft_model(model(family), LORA).eval()
        with torch.no_grad():
            for name, parameter in wrapped.named_parameters():
                if "lora_" in name:
                    parameter.normal_(0, 0.2)
    return wrapped


def state(wrapped: PeftModel) -> dict[str, Tensor]:
    return get_peft_model_state_dict(wrapped, save_embedding_layers=False)


def error(engine: HFEngine, reference: PreTrainedModel | PeftModel) -> float:
    done = one(engine, Request(0, PROMPT, 12, seed=1))
    engine.close_session(0)
    todo = {0: Session([], PROMPT + done.tokens, [(len(PROMPT), done)])}
    return largest_error(reference, todo)  # type: ignore[arg-type]


@pytest.mark.parametrize("merge", [True, False])
def test_adapters_give_the_peft_models_numbers(merge: bool) -> None:
    base = model("qwen2")
    engine = engine_of(base, lora=LORA, merge=merge)
    assert ("unmerged" in engine.describe()) != merge
    assert error(engine, base) <= 1e-5
    for version in range(1, 4):
        wrapped = trained(version)
        engine.load(version, state(wrapped) if version % 2 else save(state(wrapped)))
        assert engine.version == version
        assert error(engine, wrapped) <= 1e-5
        assert error(engine, base) > 0.1, "the adapter must matter"
    engine.load(9, None)
    assert error(engine, base) <= 1e-5


def test_merging_never_piles_up_rounding() -> None:
    base = model("qwen2")
    engine = engine_of(base, lora=LORA, merge=True)
    fresh = {k: v.clone() for k, v in engine.model.state_dict().items()}
    first = state(trained(1))
    engine.load(1, first)
    once = {k: v.clone() for k, v in engine.model.state_dict().items()}
    for version in range(2, 6):
        engine.load(version, state(trained(version)))
    engine.load(6, first)
    assert all(torch.equal(v, once[k]) for k, v in engine.model.state_dict().items())
    engine.load(7, None)
    assert all(torch.equal(v, fresh[k]) for k, v in engine.model.state_dict().items())
    assert all(torch.equal(v, model("qwen2").state_dict()[k]) for k, v in base.state_dict().items())


@pytest.mark.parametrize("merge", [True, False])
def test_a_peft_model_brings_its_adapter_along_and_is_left_alone(merge: bool) -> None:
    wrapped = trained(1)
    before = {k: v.clone() for k, v in wrapped.state_dict().items()}
    engine = engine_of(wrapped, merge=merge)  # type: ignore[arg-type]
    assert error(engine, wrapped) <= 1e-5
    engine.load(2, {**state(trained(2)), "value_head.0.weight": torch.zeros(2)})
    assert error(engine, trained(2)) <= 1e-5
    assert all(torch.equal(v, before[k]) for k, v in wrapped.state_dict().items())


def test_without_lora_all_parameters_can_be_loaded() -> None:
    base, other = model("llama"), model("llama", seed=1)
    before = {k: v.clone() for k, v in base.state_dict().items()}
    engine = engine_of(base)
    engine.load(1, dict(other.named_parameters()))
    assert error(engine, other) <= 1e-5
    assert all(torch.equal(v, before[k]) for k, v in base.state_dict().items())
    engine.load(2, None)
    assert error(engine, base) <= 1e-5


def test_what_does_not_fit_is_refused_and_changes_nothing() -> None:
    base, wrapped = model("qwen2"), trained(1)
    engine = engine_of(base, lora=LORA)
    good = state(wrapped)
    engine.load(1, good)
    name = sorted(good)[0]
    for bad in (
        {k: v for k, v in good.items() if k != name},
        {**good, "other": torch.zeros(1)},
        {**good, name: torch.zeros(2, 2)},
    ):
        with pytest.raises(ModelError, match="does not fit"):
            engine.load(2, bad)
    assert engine.version == 1
    assert error(engine, wrapped) <= 1e-5
    with pytest.raises(ModelError, match="does not fit"):
        engine_of(base).load(1, good)
    with pytest.raises(ModelError, match="PeftModel around it"):
        engine_of(wrapped.get_base_model())
    with pytest.raises(ModelError, match="own LoRA"):
        engine_of(wrapped, lora=LORA)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="plain LoRA"):
        engine_of(base, lora=LoraConfig(target_modules="all-linear", use_dora=True), merge=True)
    with pytest.raises(ModelError, match="base weights"):
        engine_of(base, lora=LoraConfig(target_modules="all-linear", init_lora_weights="pissa"))
    wrapped.merge_adapter()
    with pytest.raises(ModelError, match="merged"):
        engine_of(wrapped)  # type: ignore[arg-type]


EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 1}
REFUSED = {
    "soft-caps": lambda: Gemma2Config(**SIZE, head_dim=8),
    "sinks": lambda: GptOssConfig(**SIZE, **EXPERTS, head_dim=8, layer_types=["full_attention"] * 3),
    "linear attention": lambda: Qwen3NextConfig(**SIZE, head_dim=8, num_experts=2, moe_intermediate_size=8),
    "recurrent": lambda: MambaConfig(vocab_size=61, hidden_size=16, num_hidden_layers=2),
    "dynamic positions": lambda: LlamaConfig(
        **SIZE, rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    ),
    "too few positions": lambda: LlamaConfig(**{**SIZE, "max_position_embeddings": 300}),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_models_that_would_be_wrong_are_refused_when_the_engine_is_made(kind: str) -> None:
    made = AutoModelForCausalLM.from_config(REFUSED[kind]()).float().eval()
    with pytest.raises(ModelError) as caught:
        HFEngine(made, [STOP], slots=2, max_length=400)
    assert "\n" not in str(caught.value)


def test_a_model_that_computes_otherwise_is_refused() -> None:
    """The probe catches what no configuration says."""
    made = model("llama")
    attention = made.model.layers[1].self_attn
    forward = type(attention).forward

    class Odd(type(attention)):  # type: ignore[misc]
        def forward(self, hidden_states: Tensor, **rest: object) -> object:
            lagged = hidden_states.cumsum(1)  # a state beside the keys and values
            return forward(self, lagged, **rest)

    attention.__class__ = Odd
    with pytest.raises(ModelError, match="other logits"):
        engine_of(made)
