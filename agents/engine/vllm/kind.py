"""How the vLLM engine is opened. Imports neither vLLM nor torch: the command line shows its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.engine.vllm.settings import VLLMSettings

if TYPE_CHECKING:
    from agents.engine.base import Engine
    from agents.engine.registry import Opening


class VLLM:
    """vLLM, in worker processes (--workers 1 or more)."""

    Config = VLLMSettings
    own_process = True
    extra = "vllm"

    @staticmethod
    def open(opening: Opening, settings: VLLMSettings) -> Engine:
        from agents.engine.vllm.opening import open_engine

        return open_engine(opening, settings)
