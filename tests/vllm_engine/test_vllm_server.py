"""``--engine vllm-server`` on a real vLLM server: the promises of an engine, the trainer's log-probs, never an old
policy, and a whole run."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_cases import WIDE, Session, largest_error, model, one, plain, play, sessions, some
from engine_contract import MAX_LENGTH, ExactContract, ProtocolContract, finish
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors.torch import save as to_bytes
from server_cases import KEY, VLLMServer
from server_engine_cases import TEXTS, anew, opened, save, training_server
from torch import Tensor
from transformers import PreTrainedModel
from vllm_cases import marks

from agents.engine import Engine, Request, SamplingSettings, StopReason
from agents.engine.base import need
from agents.engine.sampling import truncated
from agents.text.errors import EngineError, ModelError
from agents.text.thoughts import ThoughtEnds

pytestmark = marks
TOLERANCE = 2e-5
PROMPT = tuple(4 + i % 50 for i in range(70))


def trained(seed: int, **lora: Any) -> PeftModel:
    """A LoRA that changes the output a lot."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = {"r": 4, "lora_alpha": 8, "target_modules": "all-linear", "task_type": "CAUSAL_LM"} | lora
        wrapped = get_peft_model(model("llama", size=WIDE), LoraConfig(**config)).eval()
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


@pytest.fixture(scope="module")
def reference() -> PreTrainedModel:
    return model("llama", size=WIDE)


@pytest.fixture(scope="module", autouse=True)
def key() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWISE_KEY_127_0_0_1", KEY)
        yield


@pytest.fixture(scope="module")
def folder(reference: PreTrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(reference, tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VLLMServer]:
    with training_server(folder, tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def whole(server: VLLMServer, reference: PreTrainedModel) -> Any:
    return opened(server, reference)


class TestProtocol(ProtocolContract):
    @pytest.fixture
    def engine(self, whole: Any) -> Iterator[Engine]:
        made = anew(whole, slots=2, max_length=MAX_LENGTH, sampling=SamplingSettings(greedy=True))
        yield made
        anew(made)


class TestExact(ExactContract):
    """What holds for draws that are not the project's own."""

    test_sampling_does_not_depend_on_batching = None  # type: ignore[assignment]
    test_a_turn_in_two_parts_is_the_turn_in_one = None  # type: ignore[assignment]
    test_thoughts_are_cut_where_they_end = None  # type: ignore[assignment]
    test_forks_continue_from_the_last_completion = None  # type: ignore[assignment]
    test_truncated_sampling = None  # type: ignore[assignment]

    @pytest.fixture
    def opened(self, whole: Any) -> Iterator[Callable[..., Engine]]:
        last = whole

        def opens(**options: Any) -> Engine:
            nonlocal last
            last = anew(last, **options)
            return last

        yield opens
        anew(last)


def test_what_it_declares(whole: Any, server: VLLMServer, reference: PreTrainedModel) -> None:
    assert whole.capabilities.full_entropy and whole.capabilities.forks
    with pytest.raises(EngineError, match="--exact needs an engine that is capable of reproducible"):
        need(whole, "reproducible", "--exact")
    some_only = opened(server, reference, top_logprobs=5)
    with pytest.raises(EngineError, match=r"full_entropy, and this one is not: vLLM server at .* 5 most probable"):
        need(some_only, "full_entropy", "who asks")
    done = one(some_only, Request(0, PROMPT, 12, seed=1))
    todo = {0: Session([], PROMPT + done.tokens, [(len(PROMPT), done)])}
    assert largest_error(reference, todo) > 0.01, "the control: an entropy over some is another"


@pytest.mark.parametrize(("top_p", "top_k"), [(0.7, 0), (1.0, 4)])
def test_truncated_sampling(whole: Any, reference: PreTrainedModel, top_p: float, top_k: int) -> None:
    todo = sessions(8, seed=8)
    play(anew(whole, sampling=SamplingSettings(top_p=top_p, top_k=top_k)), todo)
    cut = 0
    for session in todo.values():
        whole_TV = plain(reference, session.tokens)
        logp_TV = truncated(whole_TV, top_p, top_k)
        for start, done in session.spoken:
            rows = torch.arange(start - 1, start - 1 + len(done.tokens)), torch.tensor(done.tokens)
            assert (logp_TV[rows] - torch.tensor(done.logp)).abs().max() <= TOLERANCE
            cut += int((whole_TV[rows] < logp_TV[rows] - 0.01).sum())
    assert cut > 20, "what is left out must matter"


def test_what_vllm_cuts_otherwise_is_refused(whole: Any) -> None:
    engine = anew(whole, sampling=SamplingSettings(top_p=0.7, top_k=9))
    with pytest.raises(EngineError, match="set one of them"):
        engine.submit(Request(0, PROMPT, 12, seed=1))
    assert engine.pending == 0


def test_forks_go_on_from_the_last_completion(whole: Any, reference: PreTrainedModel) -> None:
    engine = anew(whole, slots=5)
    first = one(engine, Request(0, PROMPT, 6, seed=0))
    history, after = PROMPT + first.tokens, (9, 10, 11)
    engine.submit(Request(0, after, 9, seed=1))
    for name in (1, 2, 3):
        engine.submit(Request(name, after[:name], 9, seed=name, fork_of=0))
    engine.submit(Request(4, after, 9, seed=4, fork_of=0, fork_at=50))
    starts = {0: history + after, 4: PROMPT[:50] + after} | {n: history + after[:n] for n in (1, 2, 3)}
    done = {c.session: c for c in finish(engine)}
    todo = {n: Session([], at + done[n].tokens, [(len(at), done[n])]) for n, at in starts.items()}
    assert len(todo) == 5 and largest_error(reference, todo) <= TOLERANCE
    wrong = {4: Session([], history + done[4].tokens, [(len(history), done[4])])}
    assert largest_error(reference, wrong) > 0.1, "the control: where it forks matters"


def test_thoughts_are_cut_where_they_end(whole: Any, reference: PreTrainedModel) -> None:
    ends = ThoughtEnds(TEXTS)
    engine = anew(whole, slots=40, sampling=SamplingSettings(temperature=1.5))
    prompts = {name: some(random.Random(name), 20, 20) for name in range(40)}
    for name, prompt in prompts.items():
        engine.submit(Request(name, prompt, 40, seed=name, cut=ends))
    first = {done.session: done for done in finish(engine)}
    todo = {}
    cut = 0
    for name, done in first.items():
        assert ends.length(done.tokens) == (len(done.tokens) if done.stop is StopReason.CUT else None)
        todo[name] = Session([], prompts[name] + done.tokens, [(20, done)])
        cut += done.stop is StopReason.CUT
    assert cut > 10
    for name, done in first.items():
        if done.stop is StopReason.CUT:
            engine.submit(Request(name, (), 40, seed=name, skip=len(done.tokens), cut=ends))
    for done in finish(engine):
        start = todo[done.session].tokens
        todo[done.session].tokens += done.tokens
        todo[done.session].spoken.append((len(start), done))
        # The thought before ended, and a new one is looked for from its own beginning on.
        assert done.stop is not StopReason.CUT or done.tokens
    assert largest_error(reference, todo, 1.5) <= TOLERANCE
    anew(engine)


def test_every_policy_has_the_peft_models_numbers(
    server: VLLMServer, reference: PreTrainedModel, tmp_path: Path
) -> None:
    engine = opened(server, trained(1), shared_dir=str(tmp_path))
    assert error(engine, trained(1)) <= TOLERANCE, "the model's own adapter is taken over"
    for version in range(2, 5):
        wrapped = trained(version)
        engine.load(version, state(wrapped) if version % 2 else to_bytes(state(wrapped)))
        assert engine.version == version
        assert error(engine, wrapped) <= TOLERANCE
        assert error(engine, trained(version - 1)) > 0.1, "the adapter must matter"
        todo = sessions(6, seed=version)
        play(anew(engine, sampling=SamplingSettings(0.6)), todo)
        assert largest_error(wrapped, todo, 0.6) <= TOLERANCE
        assert len(list(tmp_path.iterdir())) == 1, "old ones are not kept"
    engine.load(9, None)
    assert error(engine, reference) <= TOLERANCE
    engine.close()
    assert not list(tmp_path.iterdir())


def test_a_server_that_keeps_an_old_policy_is_found_out(server: VLLMServer, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = opened(server, trained(1))
    old = engine.adapters.model
    complete = engine.server.complete

    def stale(line: Any, name: str, *rest: Any) -> Any:
        return complete(line, old, *rest)

    nearly = {name: tensor * 1.0005 for name, tensor in state(trained(1)).items()}
    engine.load(2, nearly)
    engine.load(3, state(trained(1)))
    old = engine.adapters.model
    with monkeypatch.context() as patch:
        patch.setattr(engine.server, "complete", stale)
        with pytest.raises(ModelError, match=r"plays another policy|computes other log-probs"):
            engine.load(4, nearly)
        with pytest.raises(ModelError, match="computes other log-probs than LlamaForCausalLM"):
            engine.load(4, state(trained(2)))
    assert engine.version == 3
    engine.load(4, state(trained(2)))
    assert error(engine, trained(2)) <= TOLERANCE
    engine.close()


def test_what_does_not_fit_is_refused_and_changes_nothing(server: VLLMServer) -> None:
    wrapped = trained(1)
    engine = opened(server, wrapped)
    for bad in ({**state(wrapped), "other": torch.zeros(1)}, state(trained(1, r=8))):
        with pytest.raises(ModelError, match="does not fit"):
            engine.load(2, bad)
    assert engine.version == 0 and error(engine, wrapped) <= TOLERANCE
    engine.close()
    with pytest.raises(EngineError, match=r"cannot load an adapter from .*--max-lora-rank") as caught:
        opened(server, trained(1, r=16))
    assert "\n" not in str(caught.value)


def test_servers_that_cannot_be_used(
    server: VLLMServer, reference: PreTrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EngineError, match="serves no model 'other', but tiny"):
        opened(server, reference, model="other")
    with pytest.raises(EngineError, match=r"takes sessions of 512 tokens, not of 600: .*--max-model-len 600"):
        opened(server, reference, max_length=600)
    with pytest.raises(ModelError, match="computes other log-probs than LlamaForCausalLM"):
        opened(server, model("llama", seed=1, size=WIDE))
    monkeypatch.setenv("TURNWISE_KEY_127_0_0_1", "sk-wrong")
    with pytest.raises(EngineError, match="refuses the key: export TURNWISE_KEY_127_0_0_1") as caught:
        opened(server, reference)
    assert "sk-wrong" not in str(caught.value)


def test_a_server_that_dies(server: VLLMServer, reference: PreTrainedModel) -> None:
    """Last of this server, which is started again."""
    engine = opened(server, reference)
    engine.submit(Request(0, PROMPT, 300, seed=1))
    server.kill()
    for _ in range(2):
        with pytest.raises(EngineError, match=r"^the vLLM server at http://127.* does not answer") as caught:
            finish(engine)
    assert "\n" not in str(caught.value) and KEY not in str(caught.value)


def test_a_server_with_the_wrong_flags(folder: Path, reference: PreTrainedModel, tmp_path: Path) -> None:
    """Raw log-probs; and no way to change the policy."""
    with training_server(folder, tmp_path / "raw", ("--max-logprobs", "100"), lora="False") as raw:
        with pytest.raises(ModelError, match="start it with --logprobs-mode processed_logprobs"):
            opened(raw, reference)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("agents.engine.vllm_server.parity.Parity.check", lambda self, ask: None)
            with pytest.raises(EngineError, match="VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"):
                opened(raw, trained(1))
