"""Every silent trap of reading trees with a Hugging Face model: shown to be one, and guarded."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    Gemma2Config,
    GptOssConfig,
    MambaConfig,
    MistralConfig,
    PreTrainedModel,
    Qwen3NextConfig,
    RwkvConfig,
)
from tree_cases import CRITIC_PROMPT, SIZE, VOCABULARY, WINDOW, actor_critic, base, of_actions, trees, truth

from agents.model.actor_critic import ActorCritic
from agents.model.attention.blocks import TreePlan
from agents.model.attention.interface import NAME, marker_mask
from agents.model.attention.mask import additive, tree_mask
from agents.model.settings import CriticSettings, LoraSettings, SeparateCriticSettings
from agents.text.errors import ModelError
from agents.tree.packing import pack

ROOTS = trees("chain")
BATCH = pack(ROOTS, CRITIC_PROMPT)


def direct(model: PreTrainedModel, mask: Tensor | None, attention: str = "sdpa") -> Tensor:
    """Log-probabilities of the packed row through transformers alone."""
    model.set_attn_implementation(attention)
    logits = model(
        input_ids=BATCH.token_T[None], position_ids=BATCH.pos_T[None], attention_mask=mask, use_cache=False
    ).logits[0]
    rows = torch.nonzero(BATCH.action_T >= 0).squeeze(1)
    return torch.log_softmax(logits[BATCH.parent_T[rows]], dim=-1)[torch.arange(len(rows)), BATCH.token_T[rows]]


def expected(family: str) -> Tensor:
    return truth(ActorCritic(base(family), None), ROOTS)[0]


DENSE = tree_mask(BATCH.end_T)[None, None]


@torch.no_grad()
@pytest.mark.parametrize(
    ("family", "mask", "attention"),
    [
        ("llama", None, "sdpa"),
        ("llama", torch.ones(1, len(BATCH), dtype=torch.long), "sdpa"),
        ("llama", DENSE, "eager"),
        ("mistral", DENSE, "sdpa"),
    ],
    ids=["jumping positions without a mask", "2D mask", "bool mask with eager", "sliding window"],
)
def test_the_traps_are_real_and_we_do_not_fall_in(family: str, mask: Tensor | None, attention: str) -> None:
    """transformers takes all four without a word and gives other numbers; the actor-critic does not."""
    right = expected(family)
    assert (direct(base(family), mask, attention) - right).abs().max() > 0.1
    ours = ActorCritic(base(family), None)
    assert (of_actions(BATCH, ours(BATCH)) - right).abs().max() <= 1e-5


@torch.no_grad()
def test_what_the_dense_masks_must_be_instead() -> None:
    assert (direct(base("llama"), additive(DENSE, torch.float32), "eager") - expected("llama")).abs().max() <= 1e-5
    in_depth = tree_mask(BATCH.end_T, pos_T=BATCH.pos_T, window=WINDOW)[None, None]
    assert (direct(base("mistral"), in_depth) - expected("mistral")).abs().max() <= 1e-5


def build(config: object, **more: object) -> PreTrainedModel:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config)


SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": VOCABULARY}
IDS = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
REFUSED = {
    "linear attention": (lambda: Qwen3NextConfig(**SIZE, num_experts=2, num_experts_per_tok=1), "linear_attention"),
    "recurrent": (lambda: RwkvConfig(**SMALL, **IDS), "recurrent state"),
    "state space": (lambda: MambaConfig(**SMALL, **IDS), "state"),
    "soft caps": (lambda: Gemma2Config(**SIZE), "attn_logit_softcapping"),
    "sinks": (lambda: GptOssConfig(**SIZE, num_local_experts=2, num_experts_per_tok=1), "s_aux"),
    "own attention": (lambda: AutoConfig.for_model("bloom", n_head=4, **SMALL, **IDS), "attention interface"),
    "no plan to the layers": (lambda: AutoConfig.for_model("stablelm", **SIZE), "does not hand the tree plan"),
    "chunks": (lambda: AutoConfig.for_model("llama4_text", **SIZE, intermediate_size_mlp=48), "chunked_attention"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_models_that_cannot_honour_a_tree_are_refused_in_one_line(case: str) -> None:
    config, word = REFUSED[case]
    with pytest.raises(ModelError, match=word) as caught:
        ActorCritic(build(config()))
    assert "\n" not in str(caught.value)


@torch.no_grad()
@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("gemma3_text", {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}),
        ("gemma3_text", {"final_logit_softcapping": 2.0}),
        ("phi3", {"sliding_window": WINDOW}),
        ("qwen2", {"sliding_window": WINDOW, "use_sliding_window": True, "max_window_layers": 1}),
        ("olmo2", {}),
        ("gpt_neox", {}),
        ("opt", {"ffn_dim": 48, "word_embed_proj_dim": 32}),
        ("granite", {"logits_scaling": 3.0}),
        ("cohere", {"logit_scale": 0.5}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_other_families_pass_the_self_test(family: str, options: dict) -> None:
    """Sliding and full layers mixed, scaled logits, parallel blocks: what the self-test accepts is exact."""
    model = ActorCritic(build(AutoConfig.for_model(family, **SIZE | options)), None)
    with torch.no_grad():
        for parameter in model.model.parameters():
            parameter.mul_(4 if parameter.dim() > 1 else 1)
    assert (of_actions(BATCH, model(BATCH)) - truth(model, ROOTS)[0]).abs().max() <= 1e-5


def test_the_self_test_notices_a_model_that_looks_past_the_mask() -> None:
    """A layer that mixes in the row before, whatever the mask says."""
    model = base("llama")
    model.model.layers[0].mlp.register_forward_hook(lambda _m, _a, out: out + out.roll(1, dims=1))
    with pytest.raises(ModelError, match="differently from its single paths"):
        ActorCritic(model)


def test_the_self_test_notices_a_layer_without_its_window() -> None:
    """A window that the config promises and a layer does not ask for."""
    model = build(MistralConfig(**SIZE, sliding_window=WINDOW))
    layer = model.model.layers[1].self_attn
    layer.config = MistralConfig(**SIZE, sliding_window=None)
    layer.config._attn_implementation = NAME
    with pytest.raises(ModelError, match="windows"):
        ActorCritic(model)


def test_a_forgotten_plan_is_an_error() -> None:
    model = actor_critic()
    with pytest.raises(ModelError, match="tree plan"):
        model.causal_model(BATCH.token_T[None], attention_mask=marker_mask(model.device), use_cache=False)


def test_a_mask_beside_the_plan_is_an_error() -> None:
    model = actor_critic()
    plan = TreePlan(BATCH.pos_T, BATCH.end_T)
    ones = torch.ones(1, len(BATCH), dtype=torch.long)
    with pytest.raises(ModelError, match="attention mask came with a tree plan"):
        model.causal_model(BATCH.token_T[None], attention_mask=ones.bool()[None, None], use_cache=False, tree_plan=plan)


def test_a_changed_attention_is_an_error() -> None:
    model = actor_critic()
    model.causal_model.set_attn_implementation("eager")
    with pytest.raises(ModelError, match="eager"):
        model(BATCH)


def test_dropout_in_the_config_does_not_reach_training() -> None:
    """The language model stays in evaluation mode, so that the first ratio is exactly one."""
    config = AutoConfig.for_model("llama", **SIZE, attention_dropout=0.5)
    model = ActorCritic(build(config)).train()
    assert torch.equal(model(BATCH).logp_T, model(BATCH).logp_T)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"lora": LoraSettings(targets=("q_prj",))}, "q_prj"),
        ({"temperature": 0.0}, "temperature"),
        ({"chunk": 0}, "chunk"),
    ],
)
def test_settings_out_of_range_are_refused(options: dict, word: str) -> None:
    with pytest.raises(ModelError, match=word) as error:
        ActorCritic(base(), **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "values"),
    [
        (LoraSettings, {"rank": (0, -1, 10**8), "alpha": (0.0, -1.0, float("nan"), float("inf")), "dropout": (0.1,)}),
        (CriticSettings, {"hidden": (0, 10**9), "layers": (0, 1000)}),
        (SeparateCriticSettings, {"rank": (0, 10**8), "alpha": (float("nan"),), "hidden": (0,), "layers": (0,)}),
    ],
)
def test_sizes_out_of_range_are_refused(settings: Any, values: dict[str, tuple[float, ...]]) -> None:
    for name, wrong in ((name, value) for name, several in values.items() for value in several):
        with pytest.raises(ValueError, match=f"^{name} must be"):
            settings(**{name: wrong})
