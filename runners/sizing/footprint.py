"""What a run takes in memory and in floating-point operations, from its settings and its model's shapes alone.

Invariant: no weight is loaded. What the passes keep is counted in the trainer's own code (``agents.model.shapes``);
what stays from one update to the next is counted here, with the rules of the parts that keep it.

Legend: N parameters of the layers' matrices, L layers, K key heads, D width of a head, V vocabulary, T tokens.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from peft.tuners.lora import LoraLayer
from torch import nn
from transformers import AutoConfig, PretrainedConfig

from agents.compiled.threads import allowing
from agents.engine.body import body_of
from agents.engine.compiled_body import CompiledBody
from agents.engine.weights import MERGE_UP_TO, PACK_UP_TO
from agents.model.actor_critic import ActorCritic, layers_of
from agents.model.attention.onednn_linear import usable
from agents.model.lean_layers import make_lean
from agents.model.settings import CriticSettings
from agents.model.shapes import hollow, on_cpu, passes, size
from runners.command_line.errors import UserError
from runners.loading.base_model import actor_on
from runners.settings.learner_ranks import FSDP, LearnerRanks
from runners.settings.run_settings import RunSettings

CRITIC_TOKENS = 24
"""Tokens of a critic prompt, about."""
TRAINED_COPIES = 4
"""Of what is trained: itself, its gradient, two moments of AdamW."""
DRAW = 24
"""Bytes for each entry of the vocabulary while a token is drawn: logits, log-probabilities, probabilities in float32,
their sums in float64."""
INT8, NF4 = 1.0, 0.516
"""Bytes of a quantised weight, its scales included."""


@dataclass(frozen=True)
class Footprint:
    """Bytes of a run in the trainer's process, and its arithmetic."""

    parameters: int
    trained: int
    """Parameters that are trained, the critic's included."""
    weights: int
    adapter: int
    """What is trained, with its gradient and the optimiser's state, and the engine's copy of the adapter."""
    engine: int
    """The engine's own copies of weights."""
    cache: int
    """Keys and values of all slots at full length."""
    learning: int
    """Most that a forward and backward pass keeps beside all this."""
    sampling: int
    """Most that the engine's step keeps."""
    flops_token: float
    """Floating-point operations for a token that is learned from, attention left out."""

    @property
    def total(self) -> int:
        """Peak of the process; learning and sampling take turns."""
        return self.weights + self.adapter + self.engine + self.cache + max(self.learning, self.sampling)


def config_of(source: str) -> PretrainedConfig:
    """The configuration of a Hugging Face folder or hub name. Raises UserError."""
    try:
        return AutoConfig.from_pretrained(source, trust_remote_code=False)
    except Exception as error:  # the files may be anybody's
        raise UserError(
            f"cannot read the shapes of the model {source!r}: {' '.join(str(error).split()):.200}"
        ) from None


def footprint(settings: RunSettings, config: PretrainedConfig, *, gpu: bool) -> Footprint:
    """Of a run with these settings. Raises ModelError for a model that cannot be trained."""
    train = settings.train
    dtype = _dtype(train.dtype, config)
    wide = not gpu and usable()
    inner = config.get_text_config(decoder=True)

    def build(model: Any) -> ActorCritic:
        return actor_on(model, settings)

    with torch.device("meta"):
        whole = hollow(config, dtype, wide=wide)
        linear = {m for m in whole.modules() if isinstance(m, nn.Linear)}
        head = whole.get_output_embeddings()
        weights = _held(whole, train.ranks)
        count = sum(p.numel() for p in whole.parameters())
        matrices = sum(m.weight.numel() for m in linear if m is not head)
        actor = build(whole)
    trained = size(p for group in (actor.policy_parameters(), actor.value_parameters()) for p in group)
    adapted = {m.get_base_layer() for m in actor.causal_model.modules() if isinstance(m, LoraLayer)}
    merged = dtype == torch.float32 and count <= MERGE_UP_TO
    if getattr(settings.engine, "merge", None) is not None:
        merged = settings.engine.merge
    engine = size(m.weight for m in adapted) if merged else 0
    packs = not gpu and dtype == torch.float32 and count <= PACK_UP_TO
    if packs:
        engine += (1 + wide) * size(m.weight for m in linear)  # oneDNN's own order is a copy of a copy
    if train.quantize != "none":
        each = {"int8": INT8, "nf4": NF4}[train.quantize]
        weights += round(sum(m.weight.numel() * (each - dtype.itemsize) for m in linear if m is not head))
        engine = 0
    length, heads = settings.react.max_tokens, getattr(inner, "num_key_value_heads", inner.num_attention_heads)
    width = getattr(inner, "head_dim", None) or inner.hidden_size // inner.num_attention_heads
    cache = 2 * train.slots * length * inner.num_hidden_layers * heads * width * dtype.itemsize
    critic = isinstance(settings.critic, CriticSettings) and bool(settings.critic.prompt)
    budget = getattr(settings.engine, "prefill_tokens", 0) or length
    read = min(train.slots, -(-budget // length)), min(length, budget)
    prompt = CRITIC_TOKENS if critic else 0
    how: dict[str, Any] = {"wide": wide, "merged": merged} | ({} if gpu else {"attention": train.attention})
    with _threads(train.threads), allowing(train.compiled_threads):
        held = passes(config, dtype, build, train.token_budget, read, prompt, **how)
    reading = held.reading
    if packs and _read_in_c(config):  # which keeps the hidden states, and a few rows of all else
        reading = read[0] * read[1] * inner.hidden_size * dtype.itemsize
    more = max((m.weight.numel() for m in linear if m is not head), default=0) * dtype.itemsize
    quantised = more if train.quantize != "none" else 0  # one matrix at a time is made wide again
    passed = 2 * matrices * (2 + train.gradient_checkpointing)  # no gradient of frozen weights
    return Footprint(
        parameters=count,
        trained=sum(p.numel() for group in (actor.policy_parameters(), actor.value_parameters()) for p in group),
        weights=weights,
        adapter=TRAINED_COPIES * trained + size(actor.policy_parameters()),
        engine=engine,
        cache=cache,
        learning=held.learning + quantised,
        sampling=max(reading, train.slots * inner.vocab_size * DRAW) + quantised,
        flops_token=float(passed),
    )


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Of PyTorch, as a run sets them: where there are several, C computes less of a pass."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _read_in_c(config: PretrainedConfig) -> bool:
    """Whether the engine of this machine's processor computes the model in C."""
    model = hollow(config, torch.float32, 1, wide=False)
    on_cpu(model)
    make_lean(model)
    return isinstance(body_of(model), CompiledBody)


def _held(model: nn.Module, ranks: LearnerRanks) -> int:
    """Bytes of the weights that one process of the learner holds, with one layer gathered."""
    layers = [size(layer.parameters()) for layer in layers_of(model)]
    if ranks.kind != FSDP or not layers:
        return size(model.parameters())
    return size(model.parameters()) - sum(layers) + sum(layers) // ranks.size + max(layers)


def _dtype(name: str, config: PretrainedConfig) -> torch.dtype:
    known = getattr(config, "dtype", None) if name == "auto" else getattr(torch, name)
    return known if isinstance(known, torch.dtype) else torch.float32
