"""A critic with an adapter and a head of its own, on the policy's frozen base."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from torch import Tensor
from tree_cases import FAMILIES, actor_critic, base, relative, trees, wake

from agents.model.actor_critic import ActorCritic
from agents.model.separate_critic import FILE, SeparateActorCritic
from agents.model.settings import Attention, LoraSettings, SeparateCriticSettings
from agents.text.errors import ModelError
from agents.tree import Batch, Forward
from agents.tree.chunked_backward import backward, cut, forward_parts
from agents.tree.packing import pack

LORA = LoraSettings(rank=4)
CRITIC = SeparateCriticSettings(rank=2, hidden=16, layers=2)


def separate(family: str = "llama", seed: int = 0, attention: Attention = Attention.AUTO) -> SeparateActorCritic:
    """Adapters and head moved away from their zeros."""
    model = SeparateActorCritic(base(family), LORA, CRITIC, seed=seed, attention=attention)
    wake(model)
    with torch.no_grad():
        last = model.critic_head[-1]
        last.weight.copy_(0.1 * torch.randn(last.weight.shape, generator=torch.Generator().manual_seed(2)))
    return model


@pytest.fixture
def batch() -> Batch:
    return pack(trees("several"))


def path(batch: Batch, row: int) -> Tensor:
    """The tokens from the root to a row."""
    return batch.token_T[: row + 1][batch.end_T[: row + 1] > row]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_value_is_that_of_a_plain_pass_over_its_path(family: str, batch: Batch) -> None:
    model = separate(family)
    value_T = model(batch).value_T
    body = model.critic_body.causal_model
    for row in range(0, len(batch), 7):
        out = body(input_ids=path(batch, row)[None], use_cache=False, output_hidden_states=True)
        assert (value_T[row] - model.critic_head(out.hidden_states[-1][0, -1])[0]).abs() <= 1e-5
    assert value_T.std() > 0.01


def test_the_policy_is_the_bits_that_it_is_without_a_critic(batch: Batch) -> None:
    model, alone = separate(), ActorCritic(base(), LORA, None)
    alone.load_state(model.policy_state())
    out, without = model(batch), alone(batch)
    assert torch.equal(out.logp_T, without.logp_T) and torch.equal(out.entropy_T, without.entropy_T)
    assert torch.equal(model.reference(batch), alone.reference(batch))
    assert without.value_T is None and out.value_S is None


def test_the_base_is_shared_and_nothing_that_is_trained(batch: Batch) -> None:
    model = separate()
    mine, critics = ({id(p): n for n, p in part.named_parameters()} for part in (model.model, model.critic_body))
    shared = mine.keys() & critics.keys()
    weights = {n: p for n, p in model.causal_model.named_parameters() if "lora_" not in n}
    assert shared == {id(p) for p in weights.values()} and not any(p.requires_grad for p in weights.values())
    policy, value = ({id(p) for p in part} for part in (model.policy_parameters(), model.value_parameters()))
    assert not policy & value and policy | value == {id(p) for p in model.parameters() if p.requires_grad}


@pytest.mark.parametrize("whose", ["policy", "critic"])
def test_no_gradient_crosses(whose: str, batch: Batch) -> None:
    model = separate()
    out = model(batch)
    (out.logp_T if whose == "policy" else out.value_T).sum().backward()
    for parameters, moved in ((model.policy_parameters(), "policy"), (model.value_parameters(), "critic")):
        assert all((p.grad is not None) is (whose == moved) for p in parameters)


def test_at_the_start_every_value_is_zero_or_what_it_is_calibrated_to(batch: Batch) -> None:
    settings = (SeparateCriticSettings(), SeparateCriticSettings(start="calibrated"))
    for critic, value in zip(settings, (0.0, 0.25), strict=True):
        model = SeparateActorCritic(base(), LORA, critic)
        assert not model(batch).value_T.any()
        model.calibrate([batch], 0.25)
        assert (model(batch).value_T == value).all()


def test_a_standardised_head_reads_what_the_places_before_tokens_differ_in(batch: Batch) -> None:
    model = SeparateActorCritic(base(), LORA, SeparateCriticSettings(standardize=True))
    read: list[Tensor] = []
    model.critic_head[1].register_forward_hook(lambda module, args, out: read.append(args[0].detach()))
    before_N = batch.parent_T[batch.action_T >= 0]
    for shown in (False, True):
        if shown:
            model.calibrate([batch], 0.0)
        model(batch)
        assert bool(read[-1][before_N].mean(0).abs().max() < 1e-5) is shown


@dataclass(frozen=True)
class Loss:
    total: Tensor


@pytest.mark.parametrize("pieces", [1, 2, 5])
def test_cut_into_pieces(pieces: int, batch: Batch) -> None:
    """A loss that couples the values of all tokens, and reads those of shared ones more than once."""
    model = separate("qwen3")
    longest = int(batch.pos_T.max()) + 1
    budget = next(b for b in range(len(batch), longest - 1, -1) if len(cut(batch, b)) >= pieces)

    def loss(out: Forward) -> Loss:
        before_T = out.value_T[batch.parent_T.clamp_min(0)]
        return Loss((before_T * out.logp_T).sum() + out.value_T[batch.last_S].square().mean() * before_T.sum())

    whole = loss(model(batch)).total
    expected = torch.autograd.grad(whole, [*model.policy_parameters(), *model.value_parameters()])
    ours = backward(model, batch, loss, budget).total.detach()
    assert (ours - whole).abs() <= 1e-5 * whole.abs()
    grads = [p.grad for p in (*model.policy_parameters(), *model.value_parameters())]
    assert relative(grads, list(expected)) <= 1e-5
    parts = forward_parts(model, batch, budget)
    assert (parts.value_T - model(batch).value_T).abs().max() <= 1e-5


def test_save_and_load_keep_every_bit(tmp_path: Path, batch: Batch) -> None:
    model, again = separate(), SeparateActorCritic(base(), LORA, CRITIC, seed=5)
    model.save(tmp_path)
    assert not torch.equal(again(batch).value_T, model(batch).value_T)
    again.load(tmp_path)
    ours, theirs = model(batch), again(batch)
    assert torch.equal(ours.logp_T, theirs.logp_T) and torch.equal(ours.value_T, theirs.value_T)
    assert all(torch.equal(x, again.critic_state()[name]) for name, x in model.critic_state().items())


def test_an_agent_needs_the_policy_alone(tmp_path: Path, batch: Batch) -> None:
    """The adapter is PEFT's, with no trace of a critic in it; the critic lies beside it."""
    model = separate(attention=Attention.BLOCKS)
    model.save(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} >= {"adapter_model.safetensors", FILE}
    assert not (tmp_path / "value_head.safetensors").exists()
    (tmp_path / FILE).unlink()
    agent = ActorCritic(base(), LORA, critic=None, attention=Attention.BLOCKS)
    agent.load(tmp_path)
    assert torch.equal(agent(batch).logp_T, model(batch).logp_T)
    assert agent.policy_state().keys() == model.policy_state().keys() == model.adapter_state().keys()
    tokens = torch.tensor([[5, 6, 7, 8]])
    loaded = PeftModel.from_pretrained(base(), tmp_path)
    assert torch.equal(loaded(tokens).logits, model.causal_model(tokens).logits)


def test_what_does_not_fit_is_refused_whole(tmp_path: Path) -> None:
    separate().save(tmp_path)
    for critic, word in (
        (SeparateCriticSettings(rank=3, hidden=16, layers=2), "rank"),
        (SeparateCriticSettings(rank=2, hidden=16), "value_head.4.bias is not part of this model"),
    ):
        other = SeparateActorCritic(base(), LORA, critic)
        before = {**other.policy_state(), **other.critic_state()}
        with pytest.raises(ModelError, match=word):
            other.load(tmp_path)
        assert all(torch.equal(x, before[name]) for name, x in {**other.policy_state(), **other.critic_state()}.items())
    (tmp_path / FILE).unlink()
    with pytest.raises(ModelError, match=rf"{FILE} is missing"):
        separate().load(tmp_path)


def test_a_critic_of_its_own_is_counted(batch: Batch) -> None:
    model = separate()
    lora, value = (sum(p.numel() for p in part) for part in (model.policy_parameters(), model.value_parameters()))
    assert f"{lora:,} LoRA + {value:,} separate critic" in model.summary()
    model(batch)
    assert model.counters.passes == model.critic_body.counters.passes == 1
    assert actor_critic(critic=None)(batch).value_T is None
