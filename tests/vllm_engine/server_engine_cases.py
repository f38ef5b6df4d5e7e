"""The engine on a real vLLM server, with a small random model that has a tokenizer."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from engine_cases import STOP, VOCABULARY
from peft import PeftModel
from server_cases import KEY, VLLMServer, serving
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from agents.engine import SamplingSettings
from agents.engine.registry import Opening
from agents.engine.vllm_server.kind import VLLMServer as Kind
from agents.engine.vllm_server.settings import VLLMServerSettings

TEXTS = ["so.\n\n" if i == 10 else f"w{i}\n" if i % 7 == 4 else f"\nw{i}" if i % 7 == 5 else f"w{i}" for i in range(61)]
"""What the tokens say: a blank line is in one of them, or over two."""
TRAINS = ("--enable-lora", "--max-lora-rank", "8", "--max-logprobs", "100", "--logprobs-mode", "processed_logprobs")


def save(model: PreTrainedModel, folder: Path) -> Path:
    """A folder that a server can serve."""
    assert len(TEXTS) == VOCABULARY
    words = Tokenizer(models.WordLevel({text: i for i, text in enumerate(TEXTS)}, unk_token=TEXTS[0]))
    words.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    model.save_pretrained(folder)
    return folder


@contextmanager
def training_server(
    model: Path, folder: Path, flags: Sequence[str] = TRAINS, lora: str = "True"
) -> Iterator[VLLMServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_ALLOW_RUNTIME_LORA_UPDATING", lora)
        patch.setenv("TURNWISE_KEY_127_0_0_1", KEY)
        folder.mkdir(exist_ok=True)
        with serving(model, folder, None, *flags) as server:
            yield server


def opened(
    server: VLLMServer, plays: PreTrainedModel | PeftModel, slots: int = 3, max_length: int = 400, **settings: Any
) -> Any:
    opening = Opening(plays, str(server.model), [STOP], max_length, slots, "cpu")
    return Kind.open(opening, VLLMServerSettings(server.url, **{"top_logprobs": VOCABULARY, "patience": 60} | settings))


def anew(engine: Any, slots: int = 3, max_length: int = 400, sampling: SamplingSettings | None = None) -> Any:
    """Another engine on the same server and policy; the old one's sessions are closed."""
    from agents.engine.vllm_server.engine import ServerEngine

    for session in list(engine._sessions):
        engine.close_session(session)
    made = ServerEngine(
        engine.server, engine.adapters, [STOP], max_length=max_length, slots=slots, version=0, top=engine.top
    )
    made.sampling = sampling or SamplingSettings()
    return made
