"""How the engine on a vLLM server is opened. Imports neither torch nor an HTTP library: the command line shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.engine.vllm_server.settings import VLLMServerSettings

if TYPE_CHECKING:
    from agents.engine.base import Engine
    from agents.engine.registry import Opening


class VLLMServer:
    """A running vLLM server, with adapters through its API."""

    Config = VLLMServerSettings
    training_only = True

    @staticmethod
    def open(opening: Opening, settings: VLLMServerSettings) -> Engine:
        from agents.engine.vllm_server.opening import open_engine

        return open_engine(opening, settings)
