"""Starts vLLM in this process, and proves that it computes what the model computes.

Invariant: the process is the worker's own, because vLLM changes it: environment variables, threads, and the classes of
models that it runs with transformers' code. Models made before keep working, for a critic that leads a search.
"""

from __future__ import annotations

import os
import tempfile
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from peft import PeftModel
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from agents.engine.base import Request, SamplingSettings
from agents.engine.registry import Opening
from agents.engine.vllm.calls import Calls
from agents.engine.vllm.settings import OWN_UP_TO, PREFIX, ModelImpl, Sampler, VLLMSettings
from agents.engine.weights import shared_copy
from agents.text.errors import EngineError, ModelError

if TYPE_CHECKING:
    from agents.engine.vllm.engine import VLLMEngine

BLOCK = 32
"""Tokens of a block of the cache: on a CPU a multiple of 32, and prefixes are shared by whole blocks."""
MOST_CACHE = 4096
"""MiB that a cache takes on a CPU, where its size is not set."""
START = 1800.0
"""Seconds that vLLM may take to start: on a GPU it compiles and records graphs."""
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # The second runner has no logits processors.
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "VLLM_NO_USAGE_STATS": "1",
}


def open_engine(opening: Opening, settings: VLLMSettings) -> VLLMEngine:
    """Raises ModelError for what cannot be run exactly, and EngineError where vLLM is missing or does not start."""
    if find_spec("vllm") is None:
        raise EngineError("--engine vllm needs the extra vllm: pip install 'turnwise[vllm]', or scripts/vllm_env.sh")
    os.environ.update(ENVIRONMENT)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    model = opening.model
    base = shared_copy(model.get_base_model() if isinstance(model, PeftModel) else model)
    base.set_attn_implementation("sdpa")
    config = base.config.get_text_config(decoder=True)
    device = torch.empty(0, device=opening.device).device
    expected = expectation(base, opening.max_length)
    if device.type == "cpu":
        from torch._dynamo import config as compiling

        compiling.disable = True  # it takes longer there than it saves

    from agents.engine.vllm.adapters import Adapters
    from agents.engine.vllm.draws import Drawn, processor
    from agents.engine.vllm.engine import VLLMEngine
    from agents.engine.vllm.samplers import NativeSampler, OwnSampler

    check_platform(device)
    adapters = Adapters(model)
    drawn: dict[int, Drawn] = {}
    impl = settings.model_impl if settings.model_impl != ModelImpl.AUTO else implementation(config)
    calls = Calls(settings.patience)
    arguments: dict[str, Any] = {
        "model": opening.source.rstrip("/"),
        "skip_tokenizer_init": True,
        "dtype": str(base.dtype).removeprefix("torch."),
        "max_model_len": opening.max_length,
        "max_num_seqs": opening.slots,
        "max_num_batched_tokens": max(settings.prefill_tokens, opening.slots),
        "block_size": BLOCK,
        "enable_prefix_caching": True,
        "logprobs_mode": "processed_logprobs",
        "max_logprobs": -1,
        "generation_config": "vllm",
        "model_impl": str(impl),
        "enforce_eager": settings.enforce_eager or device.type == "cpu",
        "async_scheduling": False,  # a draw must know how many tokens its request has
        "logits_processors": [processor(drawn)],
        "disable_log_stats": True,
        "seed": 0,
    }
    if adapters.lora is not None:
        arguments |= {"enable_lora": True, "max_lora_rank": adapters.max_rank, "max_loras": 1, "max_cpu_loras": 2}
    if opening.merged:
        arguments |= {"load_format": from_memory(base)}
    if device.type == "cpu":
        # There its own sampler breaks on a seeded request whose prompt was read in parts: "CPU Generator does not use
        # offset".
        whole = max(settings.prefill_tokens, opening.slots, opening.max_length)
        arguments |= {"enable_chunked_prefill": False, "max_num_batched_tokens": whole}
    arguments |= memory(config, opening, settings, device, base.dtype)
    vllm = start(arguments, calls, base)
    own = OwnSampler(opening.stop_ids, drawn)
    small = base.config.get_text_config(decoder=True).vocab_size <= OWN_UP_TO
    takes_own = settings.sampler == Sampler.OWN or (settings.sampler == Sampler.AUTO and small)
    engine = VLLMEngine(
        vllm,
        calls,
        adapters,
        own,
        opening.stop_ids,
        max_length=opening.max_length,
        slots=opening.slots,
        vocabulary=config.vocab_size,
        version=opening.version,
        how=calls(described, vllm, base, device),
    )
    try:
        check(engine, expected, base)
    except ModelError:
        engine.close()
        raise
    if not takes_own:
        engine.sampler = NativeSampler(own, settings.top_logprobs)
    engine.load(opening.version, adapters.present)
    return engine


def described(vllm: Any, base: PreTrainedModel, device: torch.device) -> str:
    from vllm import __version__

    (runs,) = vllm.apply_model(lambda model: type(model).__name__)
    whose = "transformers' code" if runs.startswith("Transformers") else "vLLM's code"
    size = sum(p.numel() for p in base.parameters()) / 1e6
    dtype = str(base.dtype).removeprefix("torch.")
    return f"vLLM {__version__}, {type(base).__name__} in {whose}, {size:.1f}M parameters, {dtype} on {device}"


def implementation(config: PretrainedConfig) -> ModelImpl:
    """vLLM's own Qwen models have one window for all layers and refuse others; transformers' code has one for each."""
    windows = len(set(getattr(config, "layer_types", None) or ())) > 1
    return ModelImpl.TRANSFORMERS if windows and config.model_type.startswith("qwen") else ModelImpl.AUTO


def check_platform(device: torch.device) -> None:
    """Raises EngineError where the installed vLLM is not made for ``device``."""
    from vllm.platforms import current_platform

    if current_platform.device_type != device.type:
        raise EngineError(
            f"the installed vLLM runs on {current_platform.device_type or 'no device here'}, not on {device.type}: "
            f"set --device, or install the other build"
        )
    if device.index:
        raise EngineError(f"vLLM takes the first GPU, not {device}: set CUDA_VISIBLE_DEVICES, and --device cuda")


def memory(
    config: PretrainedConfig, opening: Opening, settings: VLLMSettings, device: torch.device, dtype: torch.dtype
) -> dict[str, Any]:
    """The arguments that size the key/value cache."""
    if settings.cache_mib:
        return {"kv_cache_memory_bytes": settings.cache_mib << 20}
    if device.type != "cpu":
        return {"gpu_memory_utilization": settings.gpu_share}
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    block = 2 * config.num_hidden_layers * heads * width * dtype.itemsize * BLOCK
    blocks = opening.slots * -(-opening.max_length // BLOCK) + 1
    return {"kv_cache_memory_bytes": min(block * blocks, MOST_CACHE << 20)}


def start(arguments: dict[str, Any], calls: Calls, base: PreTrainedModel) -> Any:
    """vLLM. Raises ModelError where it refuses the model."""
    from vllm import EngineArgs, LLMEngine

    kind, set_num_threads = type(base.base_model), torch.set_num_threads
    makes, usual = kind.__init__, tempfile.tempdir
    try:
        # The file in which its processes would meet stays where it was made.
        with tempfile.TemporaryDirectory(prefix=PREFIX) as tempfile.tempdir:
            vllm = calls(lambda: LLMEngine.from_engine_args(EngineArgs(**arguments)), patience=START)
    except EngineError as error:
        raise ModelError(f"vLLM does not start with {arguments['model']}: {error}") from error
    finally:
        tempfile.tempdir = usual
        torch.set_num_threads = set_num_threads  # vLLM puts a function there that does nothing
        if (
            kind.__init__ is not makes
        ):  # with transformers' code it made the class its own: other models go on as before
            kind.__init__, kind.do_not_compile = makes, True
    return vllm


def from_memory(base: PreTrainedModel) -> str:
    """The load format that takes the weights of ``base``: adapters of earlier runs are merged into them."""
    from vllm.model_executor.model_loader import BaseModelLoader, register_model_loader

    weights = base.state_dict()

    class FromMemory(BaseModelLoader):
        def download_model(self, model_config: Any) -> None: ...

        def load_weights(self, model: Any, model_config: Any) -> None:
            model.load_weights(iter(weights.items()))
            weights.clear()

    register_model_loader("turnwise")(FromMemory)
    return "turnwise"


@torch.inference_mode()
def expectation(base: PreTrainedModel, max_length: int) -> tuple[tuple[int, ...], Tensor]:
    """A prompt, and the log-probabilities [V] of what follows it: longer than a block of the cache, so that the check
    reads a part of it from there."""
    vocabulary = base.config.get_text_config(decoder=True).vocab_size
    prompt = tuple((7 * i + 3) % vocabulary for i in range(min(2 * BLOCK + 9, max_length - 1)))
    logits = base(input_ids=torch.tensor([prompt], device=base.device), use_cache=False).logits[0, -1]
    return prompt, logits.float().log_softmax(-1).cpu()


def check(engine: VLLMEngine, expected: tuple[tuple[int, ...], Tensor], base: PreTrainedModel) -> None:
    """Raises ModelError where vLLM, reading a prompt for the first time and again, disagrees with the model's own code:
    it loaded other weights, or computes otherwise."""
    prompt, logp_V = expected
    engine.sampling = SamplingSettings(greedy=True)
    sessions = range(min(2, engine.slots))
    for session in sessions:
        engine.submit(Request(session, prompt, 1, seed=0))
        done = []
        while engine.pending:
            done += engine.step()
        off = abs(done[0].logp[0] - logp_V[done[0].tokens[0]].item())
        if not off <= (1e-3 if base.dtype == torch.float32 else 0.1):
            raise ModelError(f"vLLM computes other log-probabilities than {type(base).__name__} (by {off:.1e})")
    for session in sessions:
        engine.close_session(session)
    engine.sampling = SamplingSettings()
