"""Cached generation over many turns and slot refills equals an ordinary forward over the whole sequence."""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from changed_c import changed
from engine_cases import (
    FAMILIES,
    SIZE,
    WIDE,
    Session,
    again,
    engine_of,
    largest_error,
    model,
    one,
    plain,
    play,
    sessions,
    some,
)
from engine_contract import TOLERANCE, ExactContract, finish
from torch import Tensor, nn
from transformers import PreTrainedModel

from agents.compiled import transformer
from agents.compiled.transformer import Transformer
from agents.engine import Engine, Request, body, cache, hf
from agents.engine.body import Body, body_of
from agents.engine.cache import CachePlan
from agents.engine.decoding import Band
from agents.engine.weights import PolicyWeights


class TestExact(ExactContract):
    @pytest.fixture(params=FAMILIES)
    def reference(self, request: pytest.FixtureRequest) -> PreTrainedModel:
        return model(request.param)

    @pytest.fixture
    def opened(self, reference: PreTrainedModel) -> Callable[..., Engine]:
        return partial(engine_of, reference)


@pytest.mark.parametrize("padding", [None, 5.0], ids=["alone", "padded"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("how", ["in C", "in few operations", "transformers"])
@pytest.mark.parametrize("size", [SIZE, WIDE], ids=["narrow", "wide"])
def test_many_turns_and_refills_equal_a_plain_forward(
    size: dict[str, int], how: str, family: str, padding: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "FIRST_ON_CPU", 128)
    if how == "transformers":
        monkeypatch.setattr(hf, "body_of", lambda model: None)
    elif how == "in few operations":
        monkeypatch.setattr(body, "can_compile", lambda: False)
    reference = model(family, size=size)
    engine = engine_of(reference, share_prefixes=False)
    assert (how in engine.describe()) == (how != "transformers" and family != "mistral")
    engine.padding = padding
    todo = sessions(24)  # in 3 slots: every slot is filled eight times
    play(engine, todo, delay=4)
    assert largest_error(reference, todo) <= TOLERANCE
    assert len(todo) >= 6 * engine.slots
    lengths = [len(s.tokens) for s in todo.values()]
    assert max(lengths) > 128 > min(lengths), "the cache must have grown"
    assert engine.encoded_tokens == sum(lengths) - len(todo), "each token once; an episode's last is never read"
    assert engine.sampled_tokens == sum(len(c.tokens) for s in todo.values() for _, c in s.spoken)


@pytest.mark.parametrize("slots", [2, 12])
def test_few_active_rows_of_many(slots: int) -> None:
    """Idle rows between the decoding ones, and so few decoding ones that they are gathered."""
    reference = model("qwen2")
    engine = engine_of(reference, slots=slots, share_prefixes=False)
    todo = sessions(24, seed=3)
    play(engine, todo, delay=60)
    assert largest_error(reference, todo) <= TOLERANCE


@pytest.mark.parametrize("broken", ["decode", "run", "window", "position", "its position"])
def test_the_test_would_notice(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative controls: garbage behind a row, the future, keys behind the window, a wrong position."""
    monkeypatch.setattr(body, "can_compile", lambda: False)
    reference = model("mistral" if broken in ("window", "its position") else "llama")
    engine = engine_of(reference, share_prefixes=False)
    decode_mask, run_mask = Band.mask, CachePlan.run_mask
    if broken == "decode":
        monkeypatch.setattr(Band, "mask", lambda *a: decode_mask(*a).zero_())
    elif broken == "run":
        monkeypatch.setattr(CachePlan, "run_mask", lambda *a: torch.zeros_like(run_mask(*a)))
    elif broken == "window":
        monkeypatch.setattr(Band, "mask", lambda self, window, *a: decode_mask(self, None, *a))
    elif broken == "position":
        call = Body.__call__
        monkeypatch.setattr(Body, "__call__", lambda self, token, pos, *a: call(self, token, pos // 2, *a))
    else:
        forward = engine.model.forward
        monkeypatch.setattr(
            engine.model, "forward", lambda **k: forward(**{**k, "position_ids": k["position_ids"] // 2})
        )
    todo = sessions(12)
    play(engine, todo)
    assert largest_error(reference, todo) > 0.1


@pytest.mark.parametrize(
    ("family", "right", "wrong"),
    [
        ("llama", "keys, values, pos + j + 1,", "keys, values, pos + j + 2,"),  # a token that decodes sees one too many
        ("llama", "high = past + t0 + i / R + 1 - from", "high = past + t0 + m - from"),  # a run sees what comes later
        ("mixed", "length - l->window)", "length - l->window - 3)"),  # keys behind the window
        ("mixed", "most(0, high - l->window)", "most(0, high - l->window - 3)"),  # the same, in a run
        ("qwen3", "b->cos + pos * D", "b->cos + pos / 2 * D"),  # a wrong position
        ("qwen3", "l->heads.eps", "l->heads.eps + 1"),  # another norm
        ("llama", "b->keep[kept] * W", "b->keep[kept] / 2 * W"),  # the logits of an earlier token
    ],
)
def test_c_that_is_wrong_would_be_noticed(
    family: str, right: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hf, "probe", lambda *a: None)  # which would refuse most of them

    def error() -> float:
        reference, todo = model(family, size=WIDE), sessions(12)
        play(engine_of(reference, share_prefixes=False), todo)
        return largest_error(reference, todo)

    assert error() <= TOLERANCE
    monkeypatch.setattr(transformer, "SOURCE", changed(transformer.SOURCE, right, wrong, tmp_path))
    assert error() > 0.01


def test_in_c_a_session_does_not_depend_on_the_others() -> None:
    """Bit for bit: its tokens' log-probabilities are the same alone, and beside many in other slots."""
    reference = model("qwen3", size=WIDE)
    together, alone = sessions(24), sessions(24)
    play(engine_of(reference, slots=9, share_prefixes=False), together, delay=4)
    for name, session in alone.items():
        play(engine_of(reference, slots=1, share_prefixes=False), {name: session})
        said, before = ([(c.tokens, c.logp) for _, c in todo[name].spoken] for todo in (alone, together))
        assert said == before


def test_in_c_a_prompt_has_the_same_bits_wherever_chunks_cut_it() -> None:
    """Rows are taken a few hundred at once, so what stands before a prompt decides where it is cut, and whether a tile
    of a single row is left: with a query for each key head it can be."""
    engine = engine_of(model("qwen3", size=WIDE | {"num_key_value_heads": 4}), slots=2, share_prefixes=False)
    rng = random.Random(0)
    prompt, filler = some(rng, 34, 34), some(rng, 400, 400)

    def said(before: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
        if before:
            engine.submit(Request(0, filler[:before], 1, seed=0))
        engine.submit(Request(1, prompt, 3, seed=0))
        (done,) = [c for c in finish(engine) if c.session == 1]
        for session in [1, *([0] if before else [])]:
            engine.close_session(session)
        return done.tokens, done.logp

    alone = said(0)
    assert [before for before in range(150, 200) if said(before) != alone] == []


@pytest.mark.parametrize("threads", [2, 3, 9])
def test_in_c_threads_change_no_bit(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformer, "WORTH", 1)
    reference, before, edges, parts = model("qwen3", size=WIDE), torch.get_num_threads(), Transformer._edges, []

    def seen(body: Transformer, row_T: Tensor) -> list[int]:
        parts.append(len(found := edges(body, row_T)) - 1)
        return found

    def said(count: int) -> list[list[tuple[tuple[int, ...], tuple[float, ...]]]]:
        torch.set_num_threads(count)
        todo = sessions(24)
        play(engine_of(reference, slots=9), todo, delay=4)
        return [[(c.tokens, c.logp) for _, c in session.spoken] for session in todo.values()]

    monkeypatch.setattr(Transformer, "_edges", seen)
    try:
        alone, most_alone = said(1), max(parts)
        at_once = said(threads)
    finally:
        torch.set_num_threads(before)
    assert alone == at_once and (most_alone, max(parts)) == (1, threads)


def test_a_group_reads_its_prompt_once() -> None:
    reference = model("llama")
    rng = random.Random(0)
    prompt, own = some(rng, 60, 60), some(rng, 10, 10)
    todo = {i: Session([Request(i, prompt + own[:i], 5, seed=i)]) for i in range(8)}
    alone = again(todo)
    engine = engine_of(reference, slots=8)
    play(engine, todo)
    assert largest_error(reference, todo) <= TOLERANCE
    assert engine.reused_tokens >= 7 * 59
    without = engine_of(reference, slots=8, share_prefixes=False)
    play(without, alone)
    assert without.reused_tokens == 0
    assert without.encoded_tokens == engine.encoded_tokens + engine.reused_tokens
    assert [s.tokens for s in alone.values()] == [s.tokens for s in todo.values()]


def test_a_prefix_outlives_its_session_but_not_its_row_or_policy() -> None:
    reference = model("llama")
    engine = engine_of(reference, slots=1)
    rng = random.Random(0)
    prompt = some(rng, 40, 40)

    def ask(tokens: tuple[int, ...]) -> int:
        before = engine.reused_tokens
        done = one(engine, Request(0, tokens, 3, seed=0))
        engine.close_session(0)
        todo = {0: Session([], tokens + done.tokens, [(len(tokens), done)])}
        assert largest_error(reference, todo) <= TOLERANCE
        return engine.reused_tokens - before

    assert ask(prompt) == 0
    assert ask(prompt) == 0, "the only row was overwritten"
    engine = engine_of(reference, slots=2)
    engine.submit(Request(7, prompt, 3, seed=0))
    engine.step()
    assert ask(prompt) == len(prompt) - 1, "while session 7 is still sampling"
    engine.close_session(7)
    engine.load(1, None)
    assert ask(prompt) == 0, "another policy has other keys"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("cut", [1, 30, 33, 37])
def test_forks_read_nothing_again(family: str, cut: int) -> None:
    engine = engine_of(model(family), slots=4, share_prefixes=False)
    rng = random.Random(0)
    prompt, after = some(rng, 30, 30), some(rng, 6, 6)
    one(engine, Request(0, prompt, 8, seed=4))
    before = engine.encoded_tokens
    engine.submit(Request(1, (), 9, seed=2, fork_of=0, fork_at=cut))
    engine.submit(Request(2, after, 9, seed=1, fork_of=0, fork_at=cut))
    engine.submit(Request(0, after, 9, seed=3))  # and the source goes on
    finish(engine)
    assert engine.encoded_tokens - before <= 2 * len(after) + 3 + 3 * 9


def test_the_model_is_left_as_it_was() -> None:
    reference = model("qwen2")
    before = {k: v.clone() for k, v in reference.state_dict().items()}
    random_state = torch.random.get_rng_state()
    engine = engine_of(reference)
    play(engine, sessions(4))
    assert torch.equal(torch.random.get_rng_state(), random_state)
    assert all(torch.equal(v, before[k]) for k, v in reference.state_dict().items())
    assert reference.config._attn_implementation == "sdpa"
    assert engine.model.get_input_embeddings().weight is reference.get_input_embeddings().weight, "weights are shared"
    plain(reference, [5, 6, 7])


def test_a_body_follows_the_weights() -> None:
    """What is trained in place, or loaded, is what the next step computes with."""
    reference = model("qwen3")
    engine = engine_of(reference, share_prefixes=False)
    for change in range(2):
        todo = sessions(3, seed=change)
        play(engine, todo)
        assert largest_error(reference, todo) <= TOLERANCE
        with torch.no_grad():
            reference.model.layers[1].mlp.up_proj.weight.mul_(1.5)
    engine._body._weights = []  # type: ignore[union-attr]
    engine._body._stamp = 0  # type: ignore[union-attr]
    todo = sessions(3, seed=5)
    play(engine, todo)
    assert largest_error(reference, todo) > 0.1, "the control: it does not look, and keeps its copies"


@pytest.mark.parametrize("change", ["code", "hook", "instance", "activation", "type", "embedding"])
def test_a_model_that_is_not_quite_known_is_left_to_transformers(change: str) -> None:
    reference = model("llama")
    assert body_of(PolicyWeights(reference, None, None, reference.device).model) is not None
    layer = reference.model.layers[1]
    if change == "code":

        class Other(type(layer)):  # type: ignore[misc]
            def forward(self, *args: Any, **keywords: Any) -> Tensor:
                return super().forward(*args, **keywords) * 2

        layer.__class__ = Other
    elif change == "hook":
        layer.mlp.register_forward_hook(lambda module, args, out: out * 2)
    elif change == "instance":
        layer.mlp.forward = lambda x: x
    elif change == "activation":
        layer.mlp.act_fn = nn.GELU()
    elif change == "type":
        reference.double()
    else:
        reference.model.embed_tokens.__class__ = type("Scaled", (nn.Embedding,), {})
    assert body_of(PolicyWeights(reference, None, None, reference.device).model) is None
