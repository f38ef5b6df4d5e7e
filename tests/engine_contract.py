"""What every engine promises: the protocol, and that cached generation equals an ordinary forward.

A test file of an engine makes a subclass of each and gives it the fixtures that are missing here.
"""

import random
from collections.abc import Callable

import pytest
import torch
from engine_cases import STOP, Session, again, largest_error, one, plain, play, sessions, some
from transformers import PreTrainedModel

from agents.engine import Completion, ContextFull, Engine, Request, SamplingSettings, StopReason
from agents.engine.sampling import truncated
from agents.text.thoughts import ThoughtEnds

MAX_LENGTH = 40
TOLERANCE = 1e-5


def finish(engine: Engine) -> list[Completion]:
    done = []
    while engine.pending:
        done += engine.step()
    return done


class ProtocolContract:
    """Needs the fixture ``engine``: of 2 slots with MAX_LENGTH tokens, for the stop token STOP, that repeats itself."""

    def test_a_session_of_two_turns(self, engine: Engine) -> None:
        for turn, tokens in enumerate(((7, 8, 9), (10,), ())):
            engine.submit(Request(4, tokens, 3, seed=turn))
            assert engine.pending == 1
            (done,) = finish(engine)
            assert done.session == 4
            assert 1 <= len(done.tokens) == len(done.logp) == len(done.entropy) <= 3
            assert done.stop is (StopReason.END if done.tokens[-1] == STOP else StopReason.LENGTH)
            assert done.version == engine.version == 0
        engine.close_session(4)
        assert engine.step() == []

    @pytest.mark.parametrize(
        ("bad", "why"),
        [
            (Request(2, (), 3, seed=0), "prompt"),
            (Request(2, (5,), 0, seed=0), "max_tokens"),
            (Request(2, (5,), 3, seed=-1), "seed"),
            (Request(2, (5,), 3, seed=1 << 128), "seed"),
            (Request(0, (5,), 3, seed=0), "pending"),
            (Request(2, (5,), 3, seed=0, fork_of=1), "completed nothing"),
            (Request(2, (5,), 3, seed=0, fork_of=77), "completed nothing"),
            (Request(2, (5,), 3, seed=0, fork_at=1), "names none"),
            (Request(2, (5,), 3, seed=0, skip=-1), "skip"),
        ],
    )
    def test_bad_requests_change_nothing(self, engine: Engine, bad: Request, why: str) -> None:
        engine.submit(Request(0, (7, 8), 3, seed=0))
        with pytest.raises(ValueError, match=why):
            engine.submit(bad)
        assert engine.pending == 1
        (done,) = finish(engine)
        assert done.session == 0
        engine.submit(Request(1, (7, 8), 3, seed=0))  # the slot was not taken
        with pytest.raises(ValueError, match="no free slot"):
            engine.submit(Request(2, (7, 8), 3, seed=0))
        with pytest.raises(ValueError, match="open already"):
            engine.submit(Request(0, (7, 8), 3, seed=0, fork_of=1))
        engine.close_session(0)
        engine.submit(Request(2, (7, 8), 3, seed=0))
        assert {c.session for c in finish(engine)} == {1, 2}

    def test_a_full_context(self, engine: Engine) -> None:
        with pytest.raises(ContextFull):
            engine.submit(Request(0, (7,) * MAX_LENGTH, 5, seed=0))
        engine.submit(Request(0, (7,) * (MAX_LENGTH - 1), 5, seed=0))  # room for one token
        (done,) = finish(engine)
        assert len(done.tokens) == 1
        with pytest.raises(ContextFull):
            engine.submit(Request(0, (), 5, seed=0))
        engine.close_session(0)
        engine.submit(Request(0, (7,) * 10, 4, seed=0))
        first = finish(engine)[0]
        room = MAX_LENGTH - 10 - len(first.tokens)
        with pytest.raises(ContextFull):
            engine.submit(Request(0, (8,) * room, 4, seed=0))
        engine.submit(Request(0, (8,) * (room - 2), 4, seed=0))  # the session is as it was
        (second,) = finish(engine)
        assert len(second.tokens) <= 2

    def test_closing_drops_what_is_pending(self, engine: Engine) -> None:
        engine.submit(Request(0, (7, 8), 30, seed=0))
        engine.submit(Request(1, (7, 9), 3, seed=0))
        engine.close_session(0)
        assert engine.pending == 1
        assert [c.session for c in finish(engine)] == [1]
        with pytest.raises(KeyError):
            engine.close_session(0)

    def test_versions(self, engine: Engine) -> None:
        engine.submit(Request(0, (7, 8), 2, seed=0))
        with pytest.raises(RuntimeError, match="open"):
            engine.load(1, None)
        assert finish(engine)[0].version == 0
        with pytest.raises(RuntimeError, match="open"):
            engine.load(1, None)
        engine.close_session(0)
        engine.load(1, None)
        engine.submit(Request(0, (7, 8), 2, seed=0))
        assert finish(engine)[0].version == engine.version == 1

    def test_forks(self, engine: Engine) -> None:
        engine.submit(Request(0, (7, 8), 4, seed=0))
        finish(engine)
        engine.submit(Request(0, (9, 10), 4, seed=1))
        engine.submit(Request(1, (9, 10), 4, seed=1, fork_of=0))
        first, second = finish(engine)
        assert first.tokens == second.tokens

    def test_a_fork_can_begin_before_the_last_completion(self, engine: Engine) -> None:
        engine.submit(Request(0, (7, 8, 9), 3, seed=0))
        (first,) = finish(engine)
        engine.submit(Request(1, (), 3, seed=0, fork_of=0, fork_at=3))
        (again,) = finish(engine)
        assert again.tokens == first.tokens, "the prompt alone was copied"
        engine.close_session(1)
        engine.submit(Request(1, (8, 9), 3, seed=0, fork_of=0, fork_at=1))
        assert finish(engine)[0].tokens == first.tokens
        engine.close_session(1)
        for bad in (0, -1, 4 + len(first.tokens)):
            with pytest.raises(ValueError, match="no fork begins at"):
                engine.submit(Request(1, (8, 9), 3, seed=0, fork_of=0, fork_at=bad))


class ExactContract:
    """Needs the fixtures ``reference``, a model, and ``opened``: opens an engine on it for STOP and 400 tokens."""

    def test_many_turns_and_refills_equal_a_plain_forward(
        self, reference: PreTrainedModel, opened: Callable[..., Engine]
    ) -> None:
        engine = opened(slots=3)
        todo = sessions(24)  # in 3 slots: every slot is filled eight times
        play(engine, todo, delay=4)
        assert largest_error(reference, todo) <= TOLERANCE
        assert len(todo) >= 6 * engine.slots

    def test_greedy_equals_generate(self, reference: PreTrainedModel, opened: Callable[..., Engine]) -> None:
        engine = opened(slots=3, sampling=SamplingSettings(greedy=True))
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

    def test_a_resumed_session_equals_a_fresh_prefill(self, opened: Callable[..., Engine]) -> None:
        engine = opened(slots=3, sampling=SamplingSettings(greedy=True))
        todo = sessions(8, seed=5, turns=(3, 4))
        play(engine, todo)
        for session in todo.values():
            start, last = session.spoken[-1]
            fresh = one(engine, Request(99, session.tokens[:start], session.turns[-1].max_tokens, seed=0))
            engine.close_session(99)
            assert fresh.tokens == last.tokens
            assert torch.allclose(torch.tensor(fresh.logp), torch.tensor(last.logp), rtol=0, atol=TOLERANCE)

    def test_sampling_does_not_depend_on_batching(self, opened: Callable[..., Engine]) -> None:
        first = sessions(15, seed=2)
        play(opened(slots=15), first)
        for slots, order, delay in (
            (1, None, 0),
            (4, list(reversed(range(15))), 3),
            (7, [*range(7, 15), *range(7)], 9),
        ):
            second = again(first)
            play(opened(slots=slots), second, delay, order)
            for name in first:
                assert second[name].tokens == first[name].tokens
        other = again(first, seed=1)
        play(opened(slots=15), other)
        assert any(other[name].tokens != first[name].tokens for name in first), "the seed must matter"

    @pytest.mark.parametrize("temperature", [0.5, 1.7])
    @pytest.mark.parametrize("greedy", [False, True])
    def test_temperature(
        self, reference: PreTrainedModel, opened: Callable[..., Engine], temperature: float, greedy: bool
    ) -> None:
        todo = sessions(8, seed=4)
        play(opened(slots=3, sampling=SamplingSettings(temperature, greedy)), todo)
        assert largest_error(reference, todo, temperature) <= TOLERANCE
        assert largest_error(reference, todo, 1.0) > 0.1

    def test_truncated_sampling(self, reference: PreTrainedModel, opened: Callable[..., Engine]) -> None:
        todo = sessions(8, seed=8)
        play(opened(slots=3, sampling=SamplingSettings(top_p=0.7, top_k=9)), todo)
        cut = 0
        for session in todo.values():
            whole_TV = plain(reference, session.tokens)
            logp_TV = truncated(whole_TV, 0.7, 9)
            for start, done in session.spoken:
                rows = torch.arange(start - 1, start - 1 + len(done.tokens)), torch.tensor(done.tokens)
                assert (logp_TV[rows] - torch.tensor(done.logp)).abs().max() <= TOLERANCE
                cut += int((whole_TV[rows] < logp_TV[rows] - 0.01).sum())
        assert cut > 20, "what is left out must matter"

    def test_forks_continue_from_the_last_completion(
        self, reference: PreTrainedModel, opened: Callable[..., Engine]
    ) -> None:
        engine = opened(slots=4)
        rng = random.Random(0)
        prompt, after = some(rng, 30, 30), some(rng, 6, 6)
        first = one(engine, Request(0, prompt, 6, seed=0))
        history = prompt + first.tokens
        engine.submit(Request(0, after, 9, seed=1))
        engine.step()  # the source goes on ...
        engine.submit(Request(1, (), 9, seed=2, fork_of=0))  # ... and a fork still starts behind its last completion
        engine.submit(Request(2, after, 9, seed=1, fork_of=0))
        done = {c.session: c for c in finish(engine)}
        assert done[2].tokens == done[0].tokens, "same tokens, same seed"
        todo = {
            name: Session([], start + done[name].tokens, [(len(start), done[name])])
            for name, start in ((0, history + after), (1, history), (2, history + after))
        }
        assert largest_error(reference, todo) <= TOLERANCE

    @pytest.mark.parametrize("cut", [1, 30, 33, 37])
    def test_forks_that_begin_earlier(
        self, reference: PreTrainedModel, opened: Callable[..., Engine], cut: int
    ) -> None:
        engine = opened(slots=4)
        rng = random.Random(0)
        prompt, after = some(rng, 30, 30), some(rng, 6, 6)
        first = one(engine, Request(0, prompt, 8, seed=4))
        whole = prompt + first.tokens
        history = whole[:cut]
        engine.submit(Request(1, (), 9, seed=2, fork_of=0, fork_at=len(history)))
        engine.submit(Request(2, after, 9, seed=1, fork_of=0, fork_at=len(history)))
        engine.submit(Request(0, after, 9, seed=3))  # and the source goes on
        done = {c.session: c for c in finish(engine)}
        starts = {0: whole + after, 1: history, 2: history + after}
        todo = {name: Session([], at + done[name].tokens, [(len(at), done[name])]) for name, at in starts.items()}
        assert largest_error(reference, todo) <= TOLERANCE

    @pytest.mark.parametrize("part", [1, 3, 6])
    def test_a_turn_in_two_parts_is_the_turn_in_one(self, opened: Callable[..., Engine], part: int) -> None:
        prompt = some(random.Random(3), 20, 20)
        whole = max((one(opened(), Request(0, prompt, 9, seed=seed)) for seed in range(5)), key=lambda c: len(c.tokens))
        seed = [one(opened(), Request(0, prompt, 9, seed=seed)) for seed in range(5)].index(whole)
        assert len(whole.tokens) > 6
        engine = opened()
        begun = one(engine, Request(0, prompt, part, seed=seed))
        rest = one(engine, Request(0, (), 9 - part, seed=seed, skip=part))
        assert begun.tokens + rest.tokens == whole.tokens
        assert max(abs(a - b) for a, b in zip(begun.logp + rest.logp, whole.logp, strict=True)) <= TOLERANCE
        engine = opened()
        assert one(engine, Request(0, prompt, part, seed=seed)) == begun
        control = one(engine, Request(0, (), 9 - part, seed=seed))
        assert control.tokens != rest.tokens, "the control: numbers are used twice"

    def test_the_end_token_is_kept_and_lengths_are_obeyed(self, opened: Callable[..., Engine]) -> None:
        todo = sessions(40, seed=6, turns=(1, 2))
        play(opened(slots=3), todo)
        seen = set()
        for session in todo.values():
            for (_, done), request in zip(session.spoken, session.turns, strict=True):
                seen.add(done.stop)
                assert STOP not in done.tokens[:-1]
                assert (done.stop is StopReason.END) == (done.tokens[-1] == STOP)
                assert len(done.tokens) == request.max_tokens or done.stop is StopReason.END
        assert seen == {StopReason.END, StopReason.LENGTH}

    def test_thoughts_are_cut_where_they_end(self, opened: Callable[..., Engine]) -> None:
        """Every seventh token is a line break, and one is a whole blank line after a word."""
        ends = ThoughtEnds(["\n" if i % 7 == 5 else "so.\n\n" if i == 10 else "word" for i in range(61)])
        prompt = some(random.Random(4), 20, 20)
        free, cut = opened(slots=8), {}
        whole = {seed: one(free, Request(seed, prompt, 40, seed=seed)) for seed in range(8)}
        engine = opened(slots=8)
        for seed in range(8):
            engine.submit(Request(seed, prompt, 40, seed=seed, cut=ends))
        cut = {done.session: done for done in finish(engine)}
        for seed, done in cut.items():
            length = ends.length(whole[seed].tokens)
            assert done.tokens == whole[seed].tokens[:length]
            assert (done.stop is StopReason.CUT) == (length is not None and done.tokens[-1] != STOP)
        shorter = [seed for seed, done in cut.items() if len(done.tokens) < len(whole[seed].tokens)]
        assert len(shorter) > 2
        seed = shorter[0]
        rest = one(engine, Request(seed, (), 40 - len(cut[seed].tokens), seed=seed, skip=len(cut[seed].tokens)))
        assert cut[seed].tokens + rest.tokens == whole[seed].tokens, "it goes on behind the cut"
