"""Whether the server computes what the trainer computes: the same prompt for both, with every policy.

Invariant: the prompt is asked at a temperature other than 1, so that a server whose log-probs are those before the
temperature is found out, too.

Shapes: V vocabulary.
"""

from collections.abc import Callable, Mapping

import torch
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedModel

from agents.engine.base import SamplingSettings
from agents.engine.vllm_server.server import Piece, Server
from agents.engine.weights import PolicyWeights
from agents.text.errors import ModelError

PROBE = SamplingSettings(temperature=2.0)
LENGTH = 73
"""Tokens of the prompt: longer than two blocks of a cache on a CPU."""
Ask = Callable[[tuple[int, ...]], Piece]
"""Samples a token after a prompt, as `PROBE` says."""


class Parity:
    """``load`` takes a policy into the trainer's code; ``check`` compares the server with it. Both raise ModelError."""

    def __init__(self, model: PreTrainedModel | PeftModel, server: Server, source: str, max_length: int) -> None:
        base = model.get_base_model() if isinstance(model, PeftModel) else model
        self.server, self.source, self.name = server, source, type(base).__name__
        self.weights = PolicyWeights(model, None, False, base.device)
        self.weights.model.set_attn_implementation("sdpa")
        self.dtype = str(base.dtype).removeprefix("torch.")
        self.bound = 1e-3 if base.dtype in (torch.float32, torch.float64) else 0.1
        self.noise = 1e-6
        """Largest difference that was rounding."""
        vocabulary = base.config.get_text_config(decoder=True).vocab_size
        self.prompt = tuple((7 * i + 3) % vocabulary for i in range(min(LENGTH, max_length - 1)))
        self.seen: list[Tensor] = []
        """What the base model and the policy before would say."""

    def load(self, state: Mapping[str, Tensor] | bytes | None) -> None:
        self.weights.load(state)

    @torch.inference_mode()
    def check(self, ask: Ask) -> None:
        tokens = torch.tensor([self.prompt], device=self.weights.model.device)
        logits_V = self.weights.model(input_ids=tokens, use_cache=False).logits[0, -1].float().cpu()
        new_V = (logits_V / PROBE.temperature).log_softmax(-1)
        said = ask(self.prompt).top[0]
        off = distance(said, new_V)
        if off > self.bound and distance(said, logits_V.log_softmax(-1)) < off / 2:
            raise ModelError(
                f"the vLLM server at {self.server.url} gives log-probs before the temperature: start it with "
                "--logprobs-mode processed_logprobs"
            )
        if not off <= self.bound:
            raise ModelError(
                f"the vLLM server at {self.server.url} computes other log-probs than {self.name} (by {off:.1e}): it "
                f"must serve {self.source} with --dtype {self.dtype}"
            )
        if off > 4 * self.noise and any(distance(said, old_V) < off for old_V in self.seen):
            raise ModelError(f"the vLLM server at {self.server.url} still plays another policy than it was given")
        self.noise = max(self.noise, min(off, self.bound / 10))
        self.seen = [*self.seen[:1], new_V]


def distance(said: Mapping[int, float], logp_V: Tensor) -> float:
    """The mean difference over the tokens that the server named."""
    return sum(abs(x - float(logp_V[token])) for token, x in said.items()) / len(said)
