"""The default engine on a real GPU keeps every promise of an engine, by the tests of the other ones."""

from collections.abc import Callable
from functools import partial

import engine_contract
import pytest
import torch
from cuda_cases import CUDA, TOLERANCE, base, marks
from engine_cases import FAMILIES, again, engine_of, play, sessions
from engine_contract import MAX_LENGTH, ExactContract, ProtocolContract
from transformers import PreTrainedModel

from agents.engine import Engine, SamplingSettings
from agents.engine.hf import HFEngine

pytestmark = marks


class TestProtocol(ProtocolContract):
    @pytest.fixture
    def engine(self) -> Engine:
        return HFEngine(base("llama"), [3], slots=2, max_length=MAX_LENGTH, device=CUDA)


class TestExact(ExactContract):
    """Against a plain forward on the CPU."""

    @pytest.fixture(autouse=True)
    def across_devices(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(engine_contract, "TOLERANCE", TOLERANCE)

    @pytest.fixture(params=FAMILIES)
    def reference(self, request: pytest.FixtureRequest) -> PreTrainedModel:
        return base(request.param)

    @pytest.fixture
    def opened(self, reference: PreTrainedModel) -> Callable[..., Engine]:
        return partial(engine_of, reference, device=CUDA)


def test_the_same_seeds_draw_the_same_tokens_as_on_the_cpu() -> None:
    """Numbers are drawn on the CPU, so only rounding next to a limit could make a difference."""
    first = sessions(24)
    play(engine_of(base("qwen3")), first)
    second = again(first)
    play(engine_of(base("qwen3"), device=CUDA), second)
    assert all(second[name].tokens == first[name].tokens for name in first)


def test_sampling_in_bfloat16_repeats_itself() -> None:
    made = base("qwen3", torch.bfloat16)
    played = []
    for _ in range(2):
        todo = sessions(8, seed=3)
        play(engine_of(made, device=CUDA, sampling=SamplingSettings(0.8)), todo)
        played.append({name: (session.tokens, session.spoken) for name, session in todo.items()})
    assert played[0] == played[1]
    assert next(iter(played[0].values()))[1][0][1].logp
