"""The policy in the server: a LoRA adapter that is never the one before.

Invariants: every policy has a name and a path that no other had, in this run or another, because vLLM keeps keys and
values by them; it is compared with the trainer's own before a session may use it. Its files are there as long as it is
the policy, because a server that runs several adapters reads them again.
"""

import secrets
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import safetensors.torch
from peft import LoraConfig
from torch import Tensor

from agents.engine.vllm_server.parity import Parity
from agents.engine.vllm_server.server import Piece, Server
from agents.model import adapter_io
from agents.text.errors import ModelError

AskModel = Callable[[str, tuple[int, ...]], Piece]
"""Samples a token after a prompt, from the model of this name, as `parity.PROBE` says."""


class Adapters:
    """``model`` names the policy in a request."""

    def __init__(self, server: Server, base: str, lora: LoraConfig | None, parity: Parity, folder: Path) -> None:
        self.server, self.base, self.lora, self.parity, self.folder = server, base, lora, parity, folder
        self.model = base
        self._files: tempfile.TemporaryDirectory[str] | None = None

    def load(self, state: Mapping[str, Tensor] | bytes | None, ask: AskModel) -> None:
        """``ask`` is asked by the name of the new policy. Raises ModelError for an adapter that does not fit."""
        if state is None:
            self.parity.load(None)
            self.parity.check(lambda prompt: ask(self.base, prompt))
            return self._replace(self.base, None)
        if self.lora is None:
            raise ModelError("a vLLM server takes LoRA adapters only, and this model has none: use --engine hf")
        policy = adapter_io.split(safetensors.torch.load(state) if isinstance(state, bytes) else state)[0]
        self.parity.load(policy)
        name = f"turnwise-{secrets.token_hex(8)}"
        files = tempfile.TemporaryDirectory(prefix=f"{name}-", dir=self.folder)
        try:
            adapter_io.write_lora(self.lora, policy, Path(files.name))
            self.server.load(name, files.name)
            self.parity.check(lambda prompt: ask(name, prompt))
        except BaseException:
            files.cleanup()
            raise
        return self._replace(name, files)

    def drop(self) -> None:
        """Leaves the base model."""
        self._replace(self.base, None)

    def _replace(self, name: str, files: tempfile.TemporaryDirectory[str] | None) -> None:
        old, self._files = self._files, files
        before, self.model = self.model, name
        if old is not None:
            self.server.unload(before)
            old.cleanup()
