"""A real vLLM in the process of the tests. It has a folder of its own name, or ``import vllm`` would find the tests."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from engine_cases import STOP
from peft import PeftModel
from transformers import PreTrainedModel

from agents.engine import Engine, SamplingSettings
from agents.engine.registry import Opening
from agents.engine.vllm.kind import VLLM
from agents.engine.vllm.settings import VLLMSettings
from agents.engine.weights import shared_copy

ABSENT = find_spec("vllm") is None and not os.environ.get("TURNWISE_NEEDS_VLLM")
marks = [pytest.mark.vllm, pytest.mark.skipif(ABSENT, reason="vLLM is not installed")]


@contextmanager
def running(model: PreTrainedModel | PeftModel, folder: Path, **settings: Any) -> Iterator[Any]:
    """An engine on ``model``, which is saved in ``folder`` for that."""
    base = model.get_base_model() if isinstance(model, PeftModel) else model
    if not folder.exists():
        shared_copy(base).save_pretrained(folder)
    engine = VLLM.open(Opening(model, str(folder), [STOP], 400, 15, "cpu"), VLLMSettings(**settings))
    try:
        yield engine
    finally:
        engine.close()  # type: ignore[attr-defined]


def anew(engine: Any, slots: int = 3, max_length: int = 400, sampling: SamplingSettings | None = None) -> Engine:
    """Another engine with the same vLLM; the old one's sessions are closed."""
    from agents.engine.vllm.engine import VLLMEngine

    for session in list(engine._sessions):
        engine.close_session(session)
    made = VLLMEngine(
        engine.vllm, engine.calls, engine.adapters, engine.sampler, [STOP],
        max_length=max_length, slots=slots, vocabulary=engine.vocabulary, version=0, how=engine._how,
    )  # fmt: skip
    made.sampling = sampling or SamplingSettings()
    return made
