"""What every engine promises, on the scripted one and on a model."""

from collections.abc import Callable

import pytest
from engine_cases import STOP, model
from engine_contract import MAX_LENGTH, ProtocolContract
from scripted_engine import FakeEngine

from agents.engine import Engine, Request, SamplingSettings, StopReason
from agents.engine.hf import HFEngine


def fake() -> Engine:
    return FakeEngine(lambda request, history: [5] * 100, [STOP], slots=2, max_length=MAX_LENGTH)


def real() -> Engine:
    return HFEngine(model(), [STOP], slots=2, max_length=MAX_LENGTH, sampling=SamplingSettings(greedy=True))


class TestProtocol(ProtocolContract):
    @pytest.fixture(params=[fake, real], ids=["fake", "hf"])
    def engine(self, request: pytest.FixtureRequest) -> Engine:
        make: Callable[[], Engine] = request.param
        return make()


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
