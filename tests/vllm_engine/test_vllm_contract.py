"""vLLM keeps every promise of an engine, by the same tests as the default one; and its own sampler what it declares."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from engine_cases import FAMILIES, WIDE, again, engine_of, largest_error, model, plain, play, sessions
from engine_contract import MAX_LENGTH, TOLERANCE, ExactContract, ProtocolContract
from transformers import PreTrainedModel
from vllm_cases import anew, marks, running

from agents.engine import Engine, SamplingSettings
from agents.engine.base import Request, need
from agents.text.errors import EngineError

pytestmark = marks


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def reference(family: str) -> PreTrainedModel:
    return model(family, size=WIDE)


@pytest.fixture(scope="module")
def vllm(family: str, reference: PreTrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with running(reference, tmp_path_factory.mktemp("models") / family) as engine:
        yield engine


class TestProtocol(ProtocolContract):
    @pytest.fixture
    def engine(self, vllm: Any) -> Iterator[Engine]:
        made = anew(vllm, slots=2, max_length=MAX_LENGTH, sampling=SamplingSettings(greedy=True))
        yield made
        anew(made)


class TestExact(ExactContract):
    @pytest.fixture
    def opened(self, vllm: Any) -> Iterator[Callable[..., Engine]]:
        last = vllm

        def opens(**options: Any) -> Engine:
            nonlocal last
            last = anew(last, **options)
            return last

        yield opens
        anew(last)


def test_the_same_tokens_as_the_default_engine(vllm: Any, reference: PreTrainedModel) -> None:
    first = sessions(64, seed=11)
    second = again(first)
    play(anew(vllm, slots=15), first, delay=5)
    play(engine_of(reference, slots=15), second, delay=5)
    assert [s.tokens for s in first.values()] == [s.tokens for s in second.values()]
    ends = [[c.stop for _, c in s.spoken] for s in first.values()]
    assert ends == [[c.stop for _, c in s.spoken] for s in second.values()]


def test_the_same_requests_give_the_same_bits_whatever_was_played_before(vllm: Any) -> None:
    first = sessions(20, seed=12)
    play(anew(vllm, slots=7), first, delay=3)
    play(anew(vllm, slots=15), sessions(20, seed=13), delay=3)
    second = again(first)
    play(anew(vllm, slots=7), second, delay=3)
    assert [s.spoken for s in first.values()] == [s.spoken for s in second.values()]


def test_the_code_that_runs_the_model_is_told(vllm: Any, family: str) -> None:
    assert ("transformers' code" if family == "mixed" else "vLLM's code") in vllm.describe()
    assert "the project's own draws" in vllm.describe() and "float32 on cpu" in vllm.describe()


def native(vllm: Any, top: int, **options: Any) -> Any:
    from agents.engine.vllm.samplers import NativeSampler

    made: Any = anew(vllm, **options)
    made.sampler = NativeSampler(made.sampler, top)
    return made


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_native_draws_have_the_log_probs_they_were_drawn_with(
    vllm: Any, reference: PreTrainedModel, temperature: float
) -> None:
    engine = native(vllm, 0, sampling=SamplingSettings(temperature))
    todo = sessions(8, seed=14)
    play(engine, todo)
    assert largest_error(reference, todo, temperature) <= TOLERANCE
    assert engine.capabilities.full_entropy and not engine.capabilities.reproducible
    greedy = native(vllm, 0, sampling=SamplingSettings(temperature, greedy=True))
    todo = sessions(8, seed=15)
    play(greedy, todo)
    assert largest_error(reference, todo, temperature) <= TOLERANCE


def test_native_entropies_of_some_alternatives(vllm: Any, reference: PreTrainedModel) -> None:
    engine = native(vllm, 5)
    todo = sessions(8, seed=16)
    play(engine, todo)
    for session in todo.values():
        logp_TV = plain(reference, session.tokens)
        for start, done in session.spoken:
            for k, (token, logp, entropy) in enumerate(zip(done.tokens, done.logp, done.entropy, strict=True)):
                row_V = logp_TV[start - 1 + k]
                best = {int(i) for i in row_V.topk(5).indices} | {token}
                some_N = row_V[torch.tensor(sorted(best))]
                assert abs(float(row_V[token]) - logp) <= TOLERANCE
                assert abs(float(-(some_N.exp() * some_N).sum()) - entropy) <= TOLERANCE
    for capability in ("full_entropy", "forks", "reproducible"):
        with pytest.raises(EngineError, match=f"capable of {capability}, and this one is not: vLLM .* own sampler"):
            need(engine, capability, "who asks")


def test_what_vllm_cuts_otherwise_is_refused(vllm: Any, reference: PreTrainedModel) -> None:
    both = SamplingSettings(top_p=0.7, top_k=9)
    engine = native(vllm, 5, sampling=both)
    with pytest.raises(EngineError, match="set one of them"):
        engine.submit(Request(0, (5, 6, 7), 12, seed=1))
    assert engine.pending == 0
    for made in (
        native(vllm, 5, sampling=replace(both, greedy=True)),
        native(vllm, 5, sampling=replace(both, top_k=0)),
        anew(vllm, sampling=both),
    ):
        made.submit(Request(0, (5, 6, 7), 12, seed=1))
        while made.pending:
            made.step()
        anew(made)


def test_prompts_beyond_the_budget_of_a_step(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Many long ones at once, more than a step and the cache hold: they wait, and are computed again."""
    reference = model("llama", size=WIDE)
    folder = tmp_path_factory.mktemp("models") / "small"
    with running(reference, folder, prefill_tokens=64, cache_mib=2) as engine:
        for made in (anew(engine, slots=15), native(engine, 0, slots=15)):
            todo = sessions(20, seed=18, long=1)
            play(made, todo)
            assert largest_error(reference, todo) <= TOLERANCE
            anew(made)


def test_native_seeds(vllm: Any) -> None:
    first = sessions(12, seed=17)
    second, other = again(first), again(first, seed=5)
    for todo in (first, second, other):
        play(native(vllm, 5, slots=5), todo)
    assert [s.tokens for s in first.values()] == [s.tokens for s in second.values()]
    assert [s.tokens for s in first.values()] != [s.tokens for s in other.values()]
