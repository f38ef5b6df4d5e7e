"""Engines by name. Imports no torch: the command line shows their settings.

An engine of another package is a class like `HuggingFace`, named by the entry-point group ``turnwise.engines``. It has
``open``, and a frozen dataclass ``Config`` whose fields, each with a default, become the flags ``--NAME.…``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from agent_envs.plugins import Registry, check_settings, missing_extra
from agents.text.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Collection

    import torch
    from peft import PeftModel
    from transformers import PreTrainedModel

    from agents.engine.base import Engine


@dataclass(frozen=True)
class Opening:
    """Everything that an engine may need to begin; each takes what it needs."""

    model: PreTrainedModel | PeftModel
    """The trainer's model in this process. An engine may share its weights, and must not change them."""
    source: str
    """Hugging Face folder or hub name of the base model."""
    stop_ids: Collection[int]
    """Tokens that end a completion."""
    max_length: int
    """Longest session in tokens."""
    slots: int
    """Sessions that may be open at once."""
    device: torch.device | str
    version: int = 0
    """The policy version that ``model`` holds now."""
    merged: bool = False
    """Adapters of earlier runs are merged into ``model``, so that its weights are not those at ``source``."""


class EngineKind(Protocol):
    """How an engine is opened, and with which settings.

    It may have three more attributes. ``own_process`` True: it changes the whole process, so that it is opened in that
    of a worker only. ``training_only`` True: other programs play with the default engine.
    ``extra``: the extra of this package that installs what it needs, a package of the same name.
    """

    Config: type
    """A frozen dataclass; every field has a default."""

    @staticmethod
    def open(opening: Opening, settings: Any) -> Engine:
        """Raises ModelError, or ValueError for settings, in one line that the user can act on."""


@dataclass(frozen=True)
class HFSettings:
    """The engine on Hugging Face transformers."""

    merge: bool | None = None
    """Run with the adapter merged into a copy of the weights. None merges small float32 models."""
    share_prefixes: bool = True
    """Copy keys and values that another session has for the beginning of a prompt."""
    prefill_tokens: int = 16384
    """Prompt tokens that one step reads; the rest waits."""


class HuggingFace:
    """Hugging Face transformers in the worker's own process; exact and reproducible."""

    Config = HFSettings

    @staticmethod
    def open(opening: Opening, settings: HFSettings) -> Engine:
        from agents.engine.hf import HFEngine

        return HFEngine(
            opening.model,
            opening.stop_ids,
            max_length=opening.max_length,
            slots=opening.slots,
            device=opening.device,
            version=opening.version,
            merge=settings.merge,
            share_prefixes=settings.share_prefixes,
            prefill_tokens=settings.prefill_tokens,
        )


def check_kind(found: Any, who: str) -> None:
    """Raises ValueError unless ``found`` has a frozen ``Config`` with defaults, and ``open``."""
    if not callable(getattr(found, "open", None)):
        raise ValueError(f"{who} has no open(opening, settings)")
    check_settings(getattr(found, "Config", None), who)


ENGINES: Registry[EngineKind] = Registry(
    kind="engine",
    group="turnwise.engines",
    builtin={
        "hf": "agents.engine.registry:HuggingFace",
        "vllm": "agents.engine.vllm.kind:VLLM",
        "vllm-server": "agents.engine.vllm_server.kind:VLLMServer",
    },
    check=check_kind,
)


@dataclass(frozen=True)
class EngineChoice:
    """An engine by name, with its settings. It is sent to other processes."""

    name: str = "hf"
    settings: Any = HFSettings()

    @property
    def own_process(self) -> bool:
        """Whether it can be opened in the process of a worker only."""
        return getattr(ENGINES.get(self.name), "own_process", False)

    @property
    def training_only(self) -> bool:
        """Whether programs other than training play with the default engine."""
        return getattr(ENGINES.get(self.name), "training_only", False)

    def check(self, *, apart: bool) -> None:
        """Raises EngineError where it cannot be opened: in this process, or ``apart``, in that of a worker."""
        if missing := missing_extra(ENGINES.get(self.name)):
            raise EngineError(f"--engine {self.name} is {missing}")
        if self.own_process and not apart:
            raise EngineError(f"--engine {self.name} needs a process of its own: set --workers 1 or more")

    def open(self, opening: Opening) -> Engine:
        """Raises ValueError for a name that is unknown, and what the engine raises."""
        return ENGINES.get(self.name).open(opening, self.settings)
