"""Cached generation over many turns and slot refills equals an ordinary forward over the whole sequence."""

import random

import pytest
import torch
from engine_cases import (
    FAMILIES,
    STOP,
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

from agents.engine import Request, SamplingSettings, StopReason
from agents.engine.cache import CachePlan

TOLERANCE = 1e-5


@pytest.mark.parametrize("padding", [None, 5.0], ids=["alone", "padded"])
@pytest.mark.parametrize("family", FAMILIES)
def test_many_turns_and_refills_equal_a_plain_forward(family: str, padding: float | None) -> None:
    reference = model(family)
    engine = engine_of(reference, share_prefixes=False)
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


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_equals_generate(family: str) -> None:
    reference = model(family)
    engine = engine_of(reference, sampling=SamplingSettings(greedy=True))
    todo = sessions(6, seed=1, turns=(3, 3))
    play(engine, todo)
    checked = 0
    for session in todo.values():
        for (start, done), request in zip(session.spoken, session.turns, strict=True):
            whole = reference.generate(
                torch.tensor([session.tokens[:start]]),
                attention_mask=torch.ones(1, start, dtype=torch.long),
                max_new_tokens=request.max_tokens,
                do_sample=False,
                eos_token_id=STOP,
                pad_token_id=0,
            )
            assert tuple(whole[0, start:].tolist()) == done.tokens
            checked += len(done.tokens)
    assert checked > 50
    assert largest_error(reference, todo) <= TOLERANCE


def test_a_resumed_session_equals_a_fresh_prefill() -> None:
    reference = model("qwen3")
    engine = engine_of(reference, share_prefixes=False, sampling=SamplingSettings(greedy=True))
    todo = sessions(8, seed=5, turns=(3, 4))
    play(engine, todo)
    for session in todo.values():
        start, last = session.spoken[-1]
        fresh = one(engine, Request(99, session.tokens[:start], session.turns[-1].max_tokens, seed=0))
        engine.close_session(99)
        assert fresh.tokens == last.tokens
        assert torch.allclose(torch.tensor(fresh.logp), torch.tensor(last.logp), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("broken", ["decode", "run", "window", "position"])
def test_the_test_would_notice(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative controls: garbage behind a row, the future, keys behind the window, a wrong position."""
    reference = model("mistral" if broken == "window" else "llama")
    engine = engine_of(reference, share_prefixes=False)
    decode_mask, run_mask = CachePlan.decode_mask, CachePlan.run_mask
    if broken == "decode":
        monkeypatch.setattr(CachePlan, "decode_mask", lambda *a: decode_mask(*a).zero_())
    elif broken == "run":
        monkeypatch.setattr(CachePlan, "run_mask", lambda *a: torch.zeros_like(run_mask(*a)))
    elif broken == "window":
        monkeypatch.setattr(CachePlan, "decode_mask", lambda self, window, *a: decode_mask(self, None, *a))
    else:
        forward = engine.model.forward
        monkeypatch.setattr(
            engine.model, "forward", lambda **k: forward(**{**k, "position_ids": k["position_ids"] // 2})
        )
    todo = sessions(12)
    play(engine, todo)
    assert largest_error(reference, todo) > 0.1


def test_sampling_does_not_depend_on_batching() -> None:
    reference = model("qwen2")
    first = sessions(15, seed=2)
    play(engine_of(reference, slots=15), first)
    for slots, order, delay in ((1, None, 0), (4, list(reversed(range(15))), 3), (7, [*range(7, 15), *range(7)], 9)):
        second = again(first)
        play(engine_of(reference, slots=slots), second, delay, order)
        for name in first:
            assert second[name].tokens == first[name].tokens
    other = again(first, seed=1)
    play(engine_of(reference, slots=15), other)
    assert any(other[name].tokens != first[name].tokens for name in first), "the seed must matter"


@pytest.mark.parametrize("temperature", [0.5, 1.7])
def test_temperature(temperature: float) -> None:
    reference = model("llama")
    todo = sessions(8, seed=4)
    play(engine_of(reference, sampling=SamplingSettings(temperature=temperature)), todo)
    assert largest_error(reference, todo, temperature) <= TOLERANCE
    assert largest_error(reference, todo, 1.0) > 0.1


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


def test_forks_continue_from_the_last_completion() -> None:
    reference = model("mistral")
    engine = engine_of(reference, slots=4, share_prefixes=False)
    rng = random.Random(0)
    prompt, after = some(rng, 30, 30), some(rng, 6, 6)
    first = one(engine, Request(0, prompt, 6, seed=0))
    history = prompt + first.tokens
    engine.submit(Request(0, after, 9, seed=1))
    engine.step()  # the source goes on ...
    engine.submit(Request(1, (), 9, seed=2, fork_of=0))  # ... and a fork still starts behind its last completion
    engine.submit(Request(2, after, 9, seed=1, fork_of=0))
    before = engine.encoded_tokens
    done = {c.session: c for _ in range(9) for c in engine.step()}
    assert engine.encoded_tokens - before <= len(after) + 2 + 3 * 9, "no history was read again"
    assert done[2].tokens == done[0].tokens, "same tokens, same seed"
    todo = {
        name: Session([], start + done[name].tokens, [(len(start), done[name])])
        for name, start in ((0, history + after), (1, history), (2, history + after))
    }
    assert largest_error(reference, todo) <= TOLERANCE


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("cut", [1, 30, 33, 37])
def test_forks_that_begin_earlier_read_nothing_again(family: str, cut: int) -> None:
    reference = model(family)
    engine = engine_of(reference, slots=4, share_prefixes=False)
    rng = random.Random(0)
    prompt, after = some(rng, 30, 30), some(rng, 6, 6)
    first = one(engine, Request(0, prompt, 8, seed=4))
    history = (prompt + first.tokens)[:cut]
    before = engine.encoded_tokens
    engine.submit(Request(1, (), 9, seed=2, fork_of=0, fork_at=cut))
    engine.submit(Request(2, after, 9, seed=1, fork_of=0, fork_at=cut))
    engine.submit(Request(0, after, 9, seed=3))  # and the source goes on
    done = {c.session: c for _ in range(9) for c in engine.step()}
    assert engine.encoded_tokens - before <= 2 * len(after) + 3 + 3 * 9
    starts = {0: prompt + first.tokens + after, 1: history, 2: history + after}
    todo = {name: Session([], start + done[name].tokens, [(len(start), done[name])]) for name, start in starts.items()}
    assert largest_error(reference, todo) <= TOLERANCE


@pytest.mark.parametrize("part", [1, 3, 8])
def test_a_turn_in_two_parts_is_the_turn_in_one(part: int) -> None:
    reference = model("qwen3")
    prompt = some(random.Random(3), 20, 20)
    whole = one(engine_of(reference), Request(0, prompt, 9, seed=7))
    assert len(whole.tokens) == 9
    engine = engine_of(reference)
    begun = one(engine, Request(0, prompt, part, seed=7))
    rest = one(engine, Request(0, (), 9 - part, seed=7, skip=part))
    assert begun.tokens + rest.tokens == whole.tokens
    assert max(abs(a - b) for a, b in zip(begun.logp + rest.logp, whole.logp, strict=True)) <= TOLERANCE
    engine = engine_of(reference)
    assert one(engine, Request(0, prompt, part, seed=7)) == begun
    assert one(engine, Request(0, (), 9 - part, seed=7)).tokens != rest.tokens, "the control: numbers are used twice"


def test_the_end_token_is_kept_and_lengths_are_obeyed() -> None:
    reference = model("llama")
    engine = engine_of(reference)
    todo = sessions(40, seed=6, turns=(1, 2))
    play(engine, todo)
    seen = set()
    for session in todo.values():
        for (_, done), request in zip(session.spoken, session.turns, strict=True):
            seen.add(done.stop)
            assert STOP not in done.tokens[:-1]
            assert (done.stop is StopReason.END) == (done.tokens[-1] == STOP)
            assert len(done.tokens) == request.max_tokens or done.stop is StopReason.END
    assert seen == {StopReason.END, StopReason.LENGTH}


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
