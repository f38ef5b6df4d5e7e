"""Settings of the vLLM engine. Imports neither vLLM nor torch: the command line shows them."""

from dataclasses import dataclass
from enum import StrEnum

from agent_envs.ranges import check_ranges, check_share

OWN_UP_TO = 32_768
"""Vocabulary up to which ``auto`` takes the project's own draws."""

PREFIX = "turnwise-vllm-"
"""How the names of temporary folders begin."""


class Sampler(StrEnum):
    """Who draws the tokens."""

    AUTO = "auto"
    OWN = "own"
    NATIVE = "native"


class ModelImpl(StrEnum):
    """Whose code runs the model."""

    AUTO = "auto"
    VLLM = "vllm"
    TRANSFORMERS = "transformers"


@dataclass(frozen=True)
class VLLMSettings:
    """The engine on vLLM."""

    sampler: Sampler = Sampler.AUTO
    """own: the default engine's draws, so that a seed plays the same episodes on both. native: vLLM's own draws, faster
    where the vocabulary is large, but without forks. auto: own for a vocabulary of up to 32,768 tokens."""
    top_logprobs: int = 20
    """Native sampler: most probable tokens from which an entropy is computed. 0 takes the whole vocabulary, slowly."""
    cache_mib: int = 0
    """Memory of the key/value cache in MiB. 0: on a CPU what all slots can fill, 4096 at most; on a GPU what
    ``gpu_share`` leaves."""
    gpu_share: float = 0.4
    """Share of the GPU's memory that vLLM may fill; the trainer needs the rest. No effect on a CPU."""
    prefill_tokens: int = 8192
    """Most tokens that one step computes. Longer prompts are read in parts, on a CPU whole."""
    model_impl: ModelImpl = ModelImpl.AUTO
    """Whose code runs the model: vLLM's own, or transformers' inside vLLM. auto takes vLLM's own unless it is known to
    refuse the model."""
    enforce_eager: bool = False
    """Neither compile the model nor record CUDA graphs: starts sooner, runs slower. On a CPU it always runs this way.
    """
    patience: float = 300.0
    """Seconds without a sampled token, or in one call, after which vLLM counts as stuck and the run ends."""

    def __post_init__(self) -> None:
        check_ranges(self, top_logprobs=(0, 1000), cache_mib=0, prefill_tokens=32, patience=1)
        check_share(self, ValueError, "", "gpu_share")
        if self.top_logprobs != 20 and self.sampler == Sampler.OWN:
            raise ValueError("top_logprobs only works with the sampler native: own draws have full entropies")
