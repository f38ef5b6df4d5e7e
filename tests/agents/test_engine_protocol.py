"""What every engine promises, on the scripted one and on a model."""

from collections.abc import Callable

import pytest
from engine_cases import STOP, model
from scripted_engine import FakeEngine

from agents.engine import Completion, ContextFull, Engine, Request, SamplingSettings, StopReason
from agents.engine.hf import HFEngine

MAX_LENGTH = 40


def fake() -> Engine:
    return FakeEngine(lambda request, history: [5] * 100, [STOP], slots=2, max_length=MAX_LENGTH)


def real() -> Engine:
    return HFEngine(model(), [STOP], slots=2, max_length=MAX_LENGTH, sampling=SamplingSettings(greedy=True))


@pytest.fixture(params=[fake, real], ids=["fake", "hf"])
def engine(request: pytest.FixtureRequest) -> Engine:
    make: Callable[[], Engine] = request.param
    return make()


def finish(engine: Engine) -> list[Completion]:
    done = []
    while engine.pending:
        done += engine.step()
    return done


def test_a_session_of_two_turns(engine: Engine) -> None:
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
def test_bad_requests_change_nothing(engine: Engine, bad: Request, why: str) -> None:
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


def test_a_full_context(engine: Engine) -> None:
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


def test_closing_drops_what_is_pending(engine: Engine) -> None:
    engine.submit(Request(0, (7, 8), 30, seed=0))
    engine.submit(Request(1, (7, 9), 3, seed=0))
    engine.close_session(0)
    assert engine.pending == 1
    assert [c.session for c in finish(engine)] == [1]
    with pytest.raises(KeyError):
        engine.close_session(0)


def test_versions(engine: Engine) -> None:
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


def test_forks(engine: Engine) -> None:
    engine.submit(Request(0, (7, 8), 4, seed=0))
    finish(engine)
    engine.submit(Request(0, (9, 10), 4, seed=1))
    engine.submit(Request(1, (9, 10), 4, seed=1, fork_of=0))
    first, second = finish(engine)
    assert first.tokens == second.tokens


def test_a_fork_can_begin_before_the_last_completion(engine: Engine) -> None:
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


def test_the_fake_follows_its_script() -> None:
    seen = []

    def script(request: Request, history: tuple[int, ...]) -> list[int]:
        seen.append(history)
        return [10 + len(history), STOP, 99]

    engine = FakeEngine(script, [STOP], batch=1, logp=-0.25, version=6)
    engine.submit(Request(0, (7, 8), 9, seed=0))
    engine.submit(Request(1, (7,), 1, seed=0))
    (first,), (second,) = engine.step(), engine.step()
    assert (first.tokens, first.stop, first.version, first.logp) == ((10, STOP), StopReason.END, 6, (-0.25, -0.25))
    assert (second.tokens, second.stop) == ((10,), StopReason.LENGTH)
    engine.submit(Request(0, (9,), 9, seed=0))
    assert engine.step()[0].tokens == (14, STOP)
    assert seen == [(), (), (7, 8, 10, STOP)]
    engine.close_session(0)
    engine.close_session(1)
    engine.load(7, b"x")
    assert engine.loaded == [(7, b"x")]
