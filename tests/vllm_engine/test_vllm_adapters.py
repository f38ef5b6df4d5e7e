"""Policies in vLLM: never the one before; and a vLLM that fails or hangs ends with one error."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_cases import WIDE, Session, largest_error, model, one
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors.torch import save
from torch import Tensor
from vllm_cases import anew, marks, running

from agents.engine import Request
from agents.text.errors import EngineError, ModelError

pytestmark = marks
PROMPT = tuple(4 + i % 50 for i in range(70))
"""Longer than two blocks of the cache, so that stale ones would be read."""
TOLERANCE = 1e-5


def trained(seed: int, **lora: Any) -> PeftModel:
    """A LoRA that changes the output a lot."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = LoraConfig(
            **{"r": 4, "lora_alpha": 8, "target_modules": "all-linear", "task_type": "CAUSAL_LM"} | lora
        )
        wrapped = get_peft_model(model("qwen2", size=WIDE), config).eval()
        with torch.no_grad():
            for name, parameter in wrapped.named_parameters():
                if "lora_" in name:
                    parameter.normal_(0, 0.1)
    return wrapped


def state(wrapped: PeftModel) -> dict[str, Tensor]:
    return get_peft_model_state_dict(wrapped, save_embedding_layers=False)


def error(engine: Any, reference: Any) -> float:
    done = one(engine, Request(0, PROMPT, 12, seed=1))
    engine.close_session(0)
    return largest_error(reference, {0: Session([], PROMPT + done.tokens, [(len(PROMPT), done)])})


def test_other_weights_than_the_models_are_refused(tmp_path: Path) -> None:
    """The check at the start: the folder holds another model than the trainer has."""
    model("llama", seed=1, size=WIDE).save_pretrained(tmp_path / "other")
    why = "vLLM computes other log-probabilities than LlamaForCausalLM"
    with pytest.raises(ModelError, match=why), running(model("llama", size=WIDE), tmp_path / "other"):
        pass


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with running(trained(1), tmp_path_factory.mktemp("models") / "qwen2", patience=20.0) as engine:
        yield engine


@pytest.fixture
def vllm(whole: Any) -> Iterator[Any]:
    made = anew(whole)
    yield made
    anew(made)


def test_every_policy_has_the_peft_models_numbers(vllm: Any) -> None:
    base = model("qwen2", size=WIDE)
    assert error(vllm, trained(1)) <= TOLERANCE, "the model's own adapter is taken over"
    for version in range(2, 6):
        wrapped = trained(version)
        vllm.load(version, state(wrapped) if version % 2 else save(state(wrapped)))
        assert vllm.version == version
        assert error(vllm, wrapped) <= TOLERANCE
        assert error(vllm, trained(version - 1)) > 0.1, "the adapter must matter"
        with_head = {**state(wrapped), "value_head.0.weight": torch.zeros(2)}
        vllm.load(version, with_head)
        assert error(vllm, wrapped) <= TOLERANCE
    vllm.load(9, None)
    assert error(vllm, base) <= TOLERANCE
    assert len(vllm.calls(vllm.vllm.list_loras)) == 0, "old ones are not kept"


@pytest.mark.parametrize("how", ["forgotten", "same name", "same name in place"])
def test_a_version_without_a_name_of_its_own_would_be_noticed(vllm: Any, how: str, tmp_path: Path) -> None:
    """The control: what the engine avoids leaves the policy before, or its keys and values."""
    from vllm.lora.request import LoRARequest

    old, new = trained(2), trained(3)
    number = next(vllm.adapters.numbers)
    vllm.adapters.write(state(old), tmp_path)
    request = LoRARequest(f"one-{number}", number, str(tmp_path))
    vllm.calls(vllm.vllm.add_lora, request)
    vllm.adapters.request = request
    done = one(vllm, Request(0, PROMPT, 12, seed=1))  # stays open: nothing may begin the cache anew
    assert len(done.tokens) > 0
    if how != "forgotten":
        vllm.adapters.write(state(new), tmp_path)
        again = LoRARequest(f"one-{number}", number, str(tmp_path), load_inplace=how == "same name in place")
        vllm.calls(vllm.vllm.add_lora, again)
    done = one(vllm, Request(1, PROMPT, 12, seed=1))
    todo = {1: Session([], PROMPT + done.tokens, [(len(PROMPT), done)])}
    assert largest_error(new, todo) > 0.1  # type: ignore[arg-type]
    anew(vllm)
    vllm.load(4, state(new))
    assert error(vllm, new) <= TOLERANCE


def test_what_does_not_fit_is_refused_and_changes_nothing(vllm: Any) -> None:
    wrapped = trained(1)
    good = state(wrapped)
    vllm.load(1, good)
    name = sorted(good)[0]
    for bad in (
        {k: v for k, v in good.items() if k != name},
        {**good, "other": torch.zeros(1)},
        {**good, name: torch.zeros(2, 2)},
        state(trained(1, r=16)),
    ):
        with pytest.raises(ModelError, match="does not fit"):
            vllm.load(2, bad)
    assert vllm.version == 1
    assert error(vllm, wrapped) <= TOLERANCE


def test_adapters_that_vllm_does_not_run_are_refused() -> None:
    from agents.engine.vllm.adapters import Adapters

    for lora, why in (({"use_dora": True}, "plain LoRA"), ({"r": 600}, "rank 512"), ({"bias": "all"}, "plain LoRA")):
        with pytest.raises(ModelError, match=why):
            Adapters(trained(1, **lora))
    with pytest.raises(ModelError, match="this model has none"):
        Adapters(model("qwen2", size=WIDE)).load(None, None, state(trained(1)))  # type: ignore[arg-type]


def test_no_file_of_an_adapter_is_left(vllm: Any) -> None:
    from agents.engine.vllm.settings import PREFIX

    vllm.load(5, state(trained(5)))
    vllm.load(6, state(trained(6)))
    assert not list(Path(tempfile.gettempdir()).glob(f"{PREFIX}*"))


# -- failures, last: nothing works after them ------------------------------------------------------------------------


def test_vllm_that_fails_ends_with_one_error(vllm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from agents.engine.vllm.calls import Calls

    calls = vllm.calls = Calls(2.0)

    def breaks() -> None:
        raise RuntimeError("no memory\nand more")

    vllm.submit(Request(0, PROMPT, 12, seed=1))
    monkeypatch.setattr(vllm.vllm, "step", breaks)
    for _ in range(2):
        with pytest.raises(EngineError, match=r"^vLLM failed \(RuntimeError: no memory\): the engine cannot go on"):
            vllm.step()
    monkeypatch.undo()
    vllm.calls = Calls(2.0)
    assert calls.failed is not None


@pytest.mark.parametrize("how", ["hangs", "spins"])
def test_a_stuck_vllm_ends_with_one_error(vllm: Any, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    from agents.engine.vllm.calls import Calls

    vllm.submit(Request(0, PROMPT, 12, seed=1))
    vllm.calls = Calls(1.0)
    monkeypatch.setattr(vllm.vllm, "step", lambda: time.sleep(4) if how == "hangs" else [])
    started = time.monotonic()
    why = "has not answered for 1 s" if how == "hangs" else "has sampled nothing for 1 s"
    with pytest.raises(EngineError, match=why) as caught:
        while True:
            vllm.step()
    assert time.monotonic() - started < 3 and "\n" not in str(caught.value)
    with pytest.raises(EngineError, match=why):
        vllm.submit(Request(1, PROMPT, 12, seed=1))
    monkeypatch.undo()
    vllm.calls = Calls(20.0)


def test_a_request_that_really_poisons_vllm(vllm: Any, tmp_path: Path) -> None:
    """A request that names an adapter which is not there: vLLM raises, and would spin from then on."""
    from vllm.lora.request import LoRARequest

    from agents.engine.vllm.calls import Calls

    vllm.calls = Calls(20.0)
    vllm.adapters.request = LoRARequest("nowhere", 999, str(tmp_path / "nowhere"))
    with pytest.raises(EngineError, match="the engine cannot go on"):
        one(vllm, Request(0, PROMPT, 12, seed=1))
    with pytest.raises(EngineError, match="the engine cannot go on"):
        vllm.step()
    vllm.adapters.request = None
    vllm._sessions.clear()
    vllm._turns.clear()
