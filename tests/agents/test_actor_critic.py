"""The claims about the shared actor-critic, and its adapters on disk and on the wire."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load, save
from torch import Tensor
from tree_cases import CRITIC_PROMPT, FAMILIES, actor_critic, base, of_actions, trees, truth, wake

from agents.model.actor_critic import ActorCritic
from agents.model.settings import Attention, CriticSettings, LoraSettings
from agents.text.errors import ModelError
from agents.tree import Batch
from agents.tree.chunked_backward import forward_parts
from agents.tree.packing import pack
from agents.tree.unpacked import PerTurn

PROMPT = torch.tensor([[3, 1, 4, 1, 5]])
SAME = {Attention.BLOCKS: 0.0, Attention.COMPILED: 1e-6}
"""How far log-probabilities may be apart from those of a model without LoRA, all of whose weights learn: its norms and
linear layers are PyTorch's, as all are with blocks, and C adds in another order."""


@pytest.fixture
def batch() -> Batch:
    return pack(trees("several"), CRITIC_PROMPT)


def greedy(model: ActorCritic) -> Tensor:
    return model.causal_model.generate(PROMPT, max_new_tokens=12, do_sample=False, eos_token_id=None)


# -- claims -----------------------------------------------------------------------------------------------------------


def test_one_forward_gives_all_values_and_ratios(batch: Batch) -> None:
    """n + 1 values and n ratios of every episode come from one pass over the row."""
    model = actor_critic()
    assert (model.counters.passes, model.counters.tokens) == (0, 0)
    out = model(batch)
    assert out.value_S is not None
    assert model.counters.passes == 1
    assert model.counters.tokens == len(batch)
    assert model.counters.critic_tokens == len(CRITIC_PROMPT) * batch.critic_S.numel()
    chain = pack(trees("chain"), CRITIC_PROMPT)
    assert chain.critic_S.numel() == chain.state_A.numel() + 1
    assert torch.unique(out.value_S).numel() == batch.critic_S.numel()


def test_without_critic_prompts_no_critic_token_is_encoded() -> None:
    model = actor_critic()
    assert model(pack(trees("several"))).value_S is None
    assert model.counters.critic_tokens == 0


@pytest.mark.parametrize("shape", ["chain", "forks", "several"])
def test_an_empty_prompt_reads_values_where_the_answer_begins(shape: str) -> None:
    """No token more than without a critic, in one pass, in parts and in a pass per turn."""
    model, roots = actor_critic("qwen3"), trees(shape)
    batch, plain = pack(roots, ()), pack(roots)
    out, apart = model(batch), PerTurn.of(batch)
    assert model.counters.critic_tokens == 0 and torch.equal(batch.token_T, plain.token_T)
    logp_N, value_S = truth(model, roots, ())
    assert out.value_S is not None and (out.value_S - value_S).abs().max() <= 1e-5
    assert (of_actions(batch, out) - logp_N).abs().max() <= 1e-5
    others = (forward_parts(model, batch, int(batch.pos_T.max()) + 5), apart.gather(model(apart.rows)))
    assert all((other.value_S - value_S).abs().max() <= 1e-5 for other in others)
    asked = model(pack(roots, CRITIC_PROMPT)).value_S
    assert asked is not None and (asked - value_S).abs().max() > 1e-3  # the control


@pytest.mark.parametrize("attention", SAME)
def test_the_start_policy_is_the_base_and_every_value_is_zero(batch: Batch, attention: Attention) -> None:
    model, untouched = (ActorCritic(base(), lora, attention=attention) for lora in (LoraSettings(), None))
    out = model(batch)
    assert (out.logp_T - untouched(batch).logp_T).abs().max() <= SAME[attention]
    assert torch.equal(out.logp_T, model.reference(batch))
    assert out.value_S is not None and not out.value_S.any()


@pytest.mark.parametrize("attention", SAME)
def test_the_reference_is_lora_switched_off(batch: Batch, attention: Attention) -> None:
    model, untouched = (make(attention=attention) for make in (actor_critic, partial(ActorCritic, base(), None)))
    before = model(batch).logp_T
    reference = model.reference(batch)
    assert (reference - untouched(batch).logp_T).abs().max() <= SAME[attention]
    assert (reference - before).abs().max() > 0.1
    assert not reference.requires_grad
    assert torch.equal(model(batch).logp_T, before)  # LoRA is on again
    assert all(p.requires_grad for p in model.policy_parameters())


def test_without_lora_there_is_no_reference(batch: Batch) -> None:
    with pytest.raises(ModelError, match="reference"):
        actor_critic(lora=None).reference(batch)


def test_deleting_the_value_head_changes_no_bit(batch: Batch) -> None:
    model = actor_critic()
    before, text = model(batch), greedy(model)
    model.remove_value_head()
    after = model(batch)
    assert torch.equal(before.logp_T, after.logp_T)
    assert torch.equal(before.entropy_T, after.entropy_T)
    assert torch.equal(text, greedy(model))
    assert after.value_S is None
    assert model.value_parameters() == []


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_object_generates_as_transformers_does(family: str) -> None:
    """Without a plan the registered attention is transformers' own, also past a sliding window and with padding. Where
    C computes norms, gates and positions, logits are rounded otherwise."""
    ours, plain = ActorCritic(base(family), None, attention=Attention.BLOCKS).causal_model, base(family)
    in_c = ActorCritic(base(family), None).causal_model
    tokens = torch.tensor([[0, 0, 3, 1, 4], [2, 7, 1, 8, 2]])
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    options = {"attention_mask": mask, "max_new_tokens": 16, "do_sample": False, "eos_token_id": None}
    said, logits = plain.generate(tokens, **options), plain(tokens, attention_mask=mask).logits
    assert torch.equal(ours.generate(tokens, **options), said) and torch.equal(in_c.generate(tokens, **options), said)
    assert torch.equal(ours(tokens, attention_mask=mask).logits, logits)
    assert torch.allclose(in_c(tokens, attention_mask=mask).logits, logits, atol=1e-5)


def test_added_parameters_are_counted_and_printed() -> None:
    model = actor_critic(critic=CriticSettings(hidden=16))
    policy = sum(p.numel() for p in model.policy_parameters())
    value = sum(p.numel() for p in model.value_parameters())
    size = sum(p.numel() for p in base().parameters())
    # d=32, 4 heads and 2 key heads of width 8, MLP 48, two layers, rank 4: rank x (in + out) of every linear layer
    assert policy == 2 * 4 * ((32 + 32) + 2 * (32 + 16) + (32 + 32) + 3 * (32 + 48))
    assert value == (32 * 16 + 16) + (16 + 1)
    share = 100 * (policy + value) / size
    expected = f"trained: {policy:,} LoRA + {value:,} value head = {share:.1f} % of {size:,} parameters"
    assert model.summary() == expected


def test_only_lora_and_value_head_are_trained(batch: Batch) -> None:
    model = actor_critic()
    out = model(batch)
    (out.logp_T.sum() + out.value_S.sum()).backward()
    trained = {name for name, p in model.named_parameters() if p.grad is not None}
    assert trained == {name for name, _ in model.named_parameters() if "lora_" in name or name.startswith("value_head")}


def test_a_detached_critic_leaves_lora_alone(batch: Batch) -> None:
    model = actor_critic(critic=CriticSettings(detach_body=True))
    model(batch).value_S.sum().backward()
    assert all(p.grad is None for p in model.policy_parameters())
    assert all(p.grad is not None for p in model.value_parameters())


def test_the_seed_decides_and_the_global_generator_is_left_alone() -> None:
    state = torch.random.get_rng_state()
    first, same, other = (ActorCritic(base(), seed=seed).adapter_state() for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_the_self_test_leaves_no_trace_in_the_counters() -> None:
    assert actor_critic().counters.passes == 0


# -- adapters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lora", [LoraSettings(rank=4), None], ids=["lora", "full"])
def test_save_and_load_keep_every_bit(tmp_path: Path, batch: Batch, lora: LoraSettings | None) -> None:
    model = actor_critic(lora=lora)
    if lora is None:
        with torch.no_grad():
            next(model.model.parameters()).add_(0.1)
    model.save(tmp_path)
    again = ActorCritic(base(), lora)
    again.load(tmp_path)
    for name, tensor in model.adapter_state().items():
        assert torch.equal(tensor, again.adapter_state()[name]), name
    ours, theirs = model(batch), again(batch)
    assert torch.equal(ours.logp_T, theirs.logp_T) and torch.equal(ours.value_S, theirs.value_S)


def test_bytes_of_the_state_keep_every_bit(batch: Batch) -> None:
    model, again = actor_critic(), ActorCritic(base(), LoraSettings(rank=4), seed=9)
    data = save(model.adapter_state())
    assert save(again.adapter_state()) != data
    again.load_state(load(data))
    assert save(again.adapter_state()) == data
    assert torch.equal(model(batch).logp_T, again(batch).logp_T)


def test_peft_itself_loads_the_saved_adapter(tmp_path: Path, batch: Batch) -> None:
    model = actor_critic(attention=Attention.BLOCKS)
    model.save(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "value_head.safetensors"} <= names
    plain = base()
    loaded = PeftModel.from_pretrained(plain, tmp_path)
    tokens = torch.tensor([[5, 6, 7, 8]])
    assert torch.equal(loaded(tokens).logits, model.causal_model(tokens).logits)


def test_a_saved_full_model_names_no_attention_of_ours(tmp_path: Path) -> None:
    actor_critic(lora=None).save(tmp_path)
    assert "turnwise" not in json.dumps(json.loads((tmp_path / "config.json").read_text()))


def test_the_state_is_a_copy(batch: Batch) -> None:
    model = actor_critic()
    state = model.adapter_state()
    kept = {name: tensor.clone() for name, tensor in state.items()}
    wake(model, seed=7)
    assert all(torch.equal(state[name], kept[name]) for name in state)
    model.load_state(state)
    assert all(torch.equal(tensor, kept[name]) for name, tensor in model.adapter_state().items())


def test_an_agent_without_value_head_takes_the_adapter(tmp_path: Path, batch: Batch) -> None:
    model = actor_critic()
    model.save(tmp_path)
    agent = ActorCritic(base(), LoraSettings(rank=4), critic=None)
    agent.load(tmp_path)
    agent.load_state(model.policy_state())
    assert torch.equal(agent(batch).logp_T, model(batch).logp_T)


def test_what_does_not_fit_is_refused_whole(tmp_path: Path) -> None:
    model = actor_critic()
    model.save(tmp_path)
    before = model.adapter_state()
    for other, word in (
        (ActorCritic(base(), LoraSettings(rank=2)), "rank"),
        (ActorCritic(base(), LoraSettings(rank=4, targets=("q_proj",))), "does not fit"),
        (ActorCritic(base(), LoraSettings(rank=4), CriticSettings(hidden=8)), "shape"),
    ):
        kept = other.adapter_state()
        with pytest.raises(ModelError, match=word):
            other.load(tmp_path)
        assert all(torch.equal(tensor, kept[name]) for name, tensor in other.adapter_state().items())
    with pytest.raises(ModelError, match="missing"):
        model.load(tmp_path / "nowhere")
    broken = tmp_path / "adapter_model.safetensors"
    broken.write_bytes(broken.read_bytes()[:100])
    with pytest.raises(ModelError, match="cut short"):
        model.load(tmp_path)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.adapter_state().items())


# -- the value head ---------------------------------------------------------------------------------------------------


def test_the_value_head_is_as_deep_and_wide_as_asked() -> None:
    d = 32  # the width of the test models
    for layers, expected in ((1, d * 8 + 8), (3, d * 8 + 8 + 2 * (8 * 8 + 8))):
        model = ActorCritic(base(), critic=CriticSettings(hidden=8, layers=layers))
        assert sum(p.numel() for p in model.value_parameters()) == expected + 8 + 1


def test_a_deep_head_learns_in_all_its_layers(batch: Batch) -> None:
    model = actor_critic(critic=CriticSettings(hidden=8, layers=3))
    with torch.no_grad():
        model.value_head[-1].weight.fill_(0.1)
    model(batch).value_S.square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in model.value_parameters())


def test_a_calibrated_head_begins_at_the_mean_return(batch: Batch) -> None:
    for start, value in (("zero", 0.0), ("calibrated", 0.7)):
        model = ActorCritic(base(), critic=CriticSettings(start=start))
        assert not model(batch).value_S.any()
        model.calibrate([batch], 0.7)
        assert torch.allclose(model(batch).value_S, torch.tensor(value))


def test_a_standardised_head_reads_what_states_differ_in(tmp_path: Path, batch: Batch) -> None:
    """Mean 0 and deviation 1 over the episodes it was shown; saved and loaded with the head."""
    settings = CriticSettings(standardize=True, hidden=8)
    model = actor_critic(critic=settings)
    with torch.no_grad():
        model.value_head[-1].weight.fill_(0.1)
    read: list[Tensor] = []
    model.value_head[1].register_forward_hook(lambda module, args, out: read.append(args[0].detach()))
    before = model(batch).value_S
    model.calibrate([batch], 0.7)
    after = model(batch).value_S
    assert not torch.allclose(before, after)
    assert read[0].mean(0).abs().max() > 0.1
    assert read[1].mean(0).abs().max() < 1e-5
    assert torch.allclose(read[1].std(0, correction=0), torch.ones(32), atol=1e-4)
    model.save(tmp_path)
    again = ActorCritic(base(), LoraSettings(rank=4), settings)
    again.load(tmp_path)
    assert torch.equal(again(batch).value_S, after)
    with pytest.raises(ModelError, match="does not fit"):
        ActorCritic(base(), LoraSettings(rank=4), CriticSettings(hidden=8)).load(tmp_path)
