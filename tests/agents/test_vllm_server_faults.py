"""A vLLM server that is not there, stalls, hangs up or answers rubbish ends a run with one line; a twin of one.

`tests/vllm_engine/test_vllm_server.py` holds the engine to a real server.
"""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from engine_cases import STOP, Session, largest_error, model, one
from engine_contract import finish
from peft import LoraConfig, get_peft_model
from vllm_twin import Twin, slow, twin_of

from agents.engine import ENGINES, EngineChoice, Request, SamplingSettings
from agents.engine.registry import Opening
from agents.text.errors import EngineError, ModelError

KEY = "sk-of-the-tests"
PROMPT = (7, 8, 9)


@pytest.fixture
def twin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Twin]:
    monkeypatch.setenv("TURNWISE_KEY_127_0_0_1", KEY)
    with twin_of(model()) as served:
        yield served


def opened(twin: Twin, plays: Any = None, **settings: Any) -> Any:
    kind = ENGINES.get("vllm-server")
    chosen = kind.Config(twin.url, **{"top_logprobs": 61, "patience": 5.0} | settings)
    return EngineChoice("vllm-server", chosen).open(Opening(plays or model(), "m", [STOP], 400, 3, "cpu"))


def one_line(error: Any) -> str:
    said = str(error.value)
    assert "\n" not in said and "\x1b" not in said and KEY not in said
    return said


def test_it_samples_what_the_model_says(twin: Twin) -> None:
    engine = opened(twin)
    engine.sampling = SamplingSettings(0.7)
    done = one(engine, Request(0, PROMPT, 9, seed=1))
    assert largest_error(model(), {0: Session([], PROMPT + done.tokens, [(3, done)])}, 0.7) <= 1e-5
    assert {key for _, key in twin.asked} == {f"Bearer {KEY}"}


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"data": []}', b'{"data": [{"id": 1}]}', b"[" * 100_000, b"\xff"])
def test_a_list_of_models_that_is_none(twin: Twin, body: bytes) -> None:
    twin.faults["models"] = lambda _: (200, body)
    with pytest.raises(EngineError, match="does not list its models as vLLM does") as caught:
        opened(twin)
    one_line(caught)


def test_nobody_is_there(twin: Twin) -> None:
    with twin_of(model()) as gone:
        pass
    with pytest.raises(EngineError, match="does not answer") as caught:
        opened(gone)
    one_line(caught)


def choice(**changes: Any) -> bytes:
    good = {
        "token_ids": [5],
        "logprobs": {"top_logprobs": [{"token_id:5": -1.0}]},
        "finish_reason": "length",
        "stop_reason": None,
    }
    return json.dumps({"choices": [good | changes]}).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"no JSON",
        b'{"choices": []}',
        choice(token_ids=None),
        choice(token_ids=[]),
        choice(token_ids=["5"]),
        choice(token_ids=[True]),
        choice(token_ids=[-1]),
        choice(token_ids=[61]),
        choice(token_ids=[6]),
        choice(token_ids=[5, 5]),
        choice(token_ids=[5] * 20, logprobs={"top_logprobs": [{"token_id:5": -1.0}] * 20}),
        choice(logprobs=None),
        choice(logprobs={"top_logprobs": [{"token_id:5": float("nan")}]}),
        choice(logprobs={"top_logprobs": [{"token_id:5": 3.0}]}),
        choice(logprobs={"top_logprobs": [{"five": -1.0}]}),
        choice(finish_reason="abort"),
    ],
)
def test_completions_that_are_none(twin: Twin, body: bytes) -> None:
    engine = opened(twin)
    twin.faults["completions"] = lambda _: (200, body)
    engine.submit(Request(0, PROMPT, 9, seed=1))
    for _ in range(2):
        with pytest.raises(EngineError, match="gives no token ids with log-probs as vLLM does") as caught:
            finish(engine)
        one_line(caught)


def test_the_control_of_these_is_a_completion(twin: Twin) -> None:
    engine = opened(twin)
    twin.faults["completions"] = lambda _: (200, choice())
    assert one(engine, Request(0, PROMPT, 1, seed=1)).tokens == (5,)


def test_an_end_that_is_none_of_ours(twin: Twin) -> None:
    engine = opened(twin)
    twin.faults["completions"] = lambda _: (200, choice(finish_reason="stop", stop_reason=5))
    engine.submit(Request(0, PROMPT, 9, seed=1))
    with pytest.raises(EngineError, match="start it with --generation-config vllm"):
        finish(engine)


def test_what_a_server_says_cannot_reach_the_terminal(twin: Twin) -> None:
    engine = opened(twin)
    twin.faults["completions"] = lambda _: (500, f"no\x1b[2J\nmemory {KEY}".encode())
    engine.submit(Request(0, PROMPT, 9, seed=1))
    with pytest.raises(EngineError, match=r"does not complete a prompt \(status 500: no.*memory \*\*\*\)") as caught:
        finish(engine)
    one_line(caught)


def test_a_server_that_stalls(twin: Twin) -> None:
    engine = opened(twin, patience=1.0)
    twin.faults["completions"] = slow(4)
    started = time.monotonic()
    engine.submit(Request(0, PROMPT, 9, seed=1))
    with pytest.raises(EngineError, match=r"does not answer within 1 s \(--vllm-server.patience\)") as caught:
        finish(engine)
    one_line(caught)
    assert time.monotonic() - started < 3


def test_a_server_that_hangs_up_is_asked_once_more(twin: Twin) -> None:
    engine, calls = opened(twin), []

    def once(body: dict[str, Any]) -> tuple[int, bytes] | None:
        calls.append(body)
        return None if len(calls) == 1 else (200, choice())

    twin.faults["completions"] = once
    assert one(engine, Request(0, PROMPT, 1, seed=1)).tokens == (5,)
    assert calls[0] == calls[1]
    twin.faults["completions"] = lambda _: None
    engine.submit(Request(0, (), 1, seed=1))
    with pytest.raises(EngineError, match="does not answer: "):
        finish(engine)


def test_a_closed_session_waits_for_nobody(twin: Twin) -> None:
    engine = opened(twin)
    twin.faults["completions"] = slow(3)
    engine.submit(Request(0, PROMPT, 9, seed=1))
    started = time.monotonic()
    engine.close_session(0)
    del twin.faults["completions"]
    assert engine.pending == 0 and engine.step() == []
    assert one(engine, Request(0, PROMPT, 1, seed=1)).tokens and time.monotonic() - started < 2


def test_a_closed_session_is_not_asked_about_again(twin: Twin) -> None:
    engine, calls = opened(twin), []

    def late(body: dict[str, Any]) -> tuple[int, bytes]:
        calls.append(body)
        time.sleep(1.0)
        return 200, choice()

    twin.faults["completions"] = late
    engine.submit(Request(0, PROMPT, 9, seed=1))
    while not calls:
        time.sleep(0.01)
    engine.close_session(0)
    time.sleep(2.0)
    assert len(calls) == 1


def adapted(twin: Twin) -> Any:
    return get_peft_model(model(), LoraConfig(target_modules="all-linear", task_type="CAUSAL_LM"))


def test_a_server_without_adapters(twin: Twin) -> None:
    twin.faults["load_lora_adapter"] = lambda _: (404, b'{"detail":"Not Found"}')
    with pytest.raises(EngineError, match=r"cannot load an adapter .*VLLM_ALLOW_RUNTIME_LORA_UPDATING=True") as caught:
        opened(twin, adapted(twin))
    one_line(caught)


def test_a_server_that_only_says_that_it_loaded(twin: Twin, tmp_path: Any) -> None:
    for path in ("load_lora_adapter", "unload_lora_adapter"):
        twin.faults[path] = lambda _: (200, b"Success")
    policy = adapted(twin)  # it changes nothing yet, so it is the base model
    engine = opened(twin, policy, shared_dir=str(tmp_path))
    new = {name: torch.full_like(tensor, 0.02) for name, tensor in _state(policy).items()}
    with pytest.raises(ModelError, match=r"still plays another policy|computes other log-probs") as caught:
        engine.load(1, new)
    one_line(caught)
    assert engine.version == 0 and len(list(tmp_path.iterdir())) == 1


def test_log_probs_before_the_temperature_are_found_out(twin: Twin) -> None:
    completions = twin.completions

    def raw(body: dict[str, Any]) -> tuple[int, bytes]:
        return 200, json.dumps(completions(body | {"temperature": 1.0})).encode()

    twin.faults["completions"] = raw
    with pytest.raises(ModelError, match="start it with --logprobs-mode processed_logprobs"):
        opened(twin)


def test_other_weights_and_shorter_sessions(twin: Twin) -> None:
    with pytest.raises(ModelError, match="it must serve m with --dtype float32"):
        opened(twin, model(seed=1))
    twin.max_length = 399
    with pytest.raises(EngineError, match="start it with --max-model-len 400"):
        opened(twin)


def test_settings() -> None:
    settings = ENGINES.get("vllm-server").Config
    for wrong in ({"url": "here"}, {"url": "http://me:secret@host/v1"}, {"patience": 0}, {"top_logprobs": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))) as caught:
            settings(**wrong)
        assert "secret" not in str(caught.value)


def _state(policy: Any) -> Any:
    from peft import get_peft_model_state_dict

    return get_peft_model_state_dict(policy, save_embedding_layers=False)
