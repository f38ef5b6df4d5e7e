"""Opens the engine: asks the server what it serves, and proves that it computes what the model computes."""

import tempfile
from pathlib import Path

from peft import LoraConfig, PeftModel, get_peft_model_state_dict

from agents.engine.registry import Opening
from agents.engine.vllm_server.adapters import Adapters
from agents.engine.vllm_server.engine import ServerEngine
from agents.engine.vllm_server.parity import Parity
from agents.engine.vllm_server.server import Server
from agents.engine.vllm_server.settings import VLLMServerSettings
from agents.engine.weights import plain
from agents.text.errors import EngineError, ModelError


def open_engine(opening: Opening, settings: VLLMServerSettings) -> ServerEngine:
    """Raises ModelError for what the server cannot run exactly, and EngineError for a server that cannot be used."""
    model = opening.model
    lora = None
    if isinstance(model, PeftModel):
        lora = next(iter(model.peft_config.values()))
        if not isinstance(lora, LoraConfig) or not plain(lora):
            raise ModelError("vLLM runs plain LoRA only: no other adapters, no DoRA, no biases, no modules_to_save")
    folder = Path(settings.shared_dir or tempfile.gettempdir()).absolute()
    if not folder.is_dir():
        raise EngineError(f"--vllm-server.shared-dir {folder} is no folder")
    base = model.get_base_model() if isinstance(model, PeftModel) else model
    server = Server(settings.url, settings.patience)
    server.vocabulary = base.config.get_text_config(decoder=True).vocab_size
    served = server.base_model(settings.model)
    if served.max_length < opening.max_length:
        raise server.error(
            f"takes sessions of {served.max_length} tokens, not of {opening.max_length}: start it with --max-model-len "
            f"{opening.max_length}"
        )
    parity = Parity(model, server, "a merged model" if opening.merged else opening.source, opening.max_length)
    adapters = Adapters(server, served.name, lora, parity, folder)
    engine = ServerEngine(
        server,
        adapters,
        opening.stop_ids,
        max_length=opening.max_length,
        slots=opening.slots,
        version=opening.version,
        top=settings.top_logprobs,
    )
    engine.load(opening.version, None)
    if lora is not None:
        engine.load(opening.version, get_peft_model_state_dict(model, save_embedding_layers=False))
    return engine
