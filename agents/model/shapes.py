"""What a pass keeps in memory, from shapes alone.

Invariant: no weight exists and nothing is computed. The modules and functions of training themselves run, on tensors
without numbers, and every storage counts from when it is made until it is freed. So the terms are the code's own; what
a kernel or an allocator takes beside its results is not among them.

Layers are alike: a pass is run with one and with two layers, and goes on in a straight line. A long row is run as a
shorter one with as much shorter chunks of logits.
"""

import copy
import weakref
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from agents.model.actor_critic import ActorCritic
from agents.model.attention.onednn_linear import widen
from agents.model.settings import Attention
from agents.tree import Batch, Forward, Kind, Node
from agents.tree.packing import pack

MOST_TOKENS = 1024
"""Tokens of the row that is run; longer rows are scaled."""
ACTION, OBSERVATION = 80, 100
"""Tokens of a turn of the row that is run. Only the share of sampled tokens matters, about a third here: each has a row
of logits, and they are in memory a chunk at a time."""

Build = Callable[[PreTrainedModel], ActorCritic]


@dataclass(frozen=True)
class Passes:
    """Bytes beside weights, their gradients and the optimiser's state."""

    learning: int
    """Peak of a forward and backward pass."""
    reading: int
    """Peak of a pass without gradient up to the last hidden states: what reading a prompt takes."""


def hollow(config: PretrainedConfig, dtype: torch.dtype, layers: int | None = None, *, wide: bool) -> PreTrainedModel:
    """A model of these shapes without numbers, of ``layers`` layers where that is given. ``wide``: with the linear
    layers that this machine's processor runs."""
    if layers is not None:
        config = copy.deepcopy(config)
        inner = config.get_text_config(decoder=True)
        inner.num_hidden_layers = layers
        if getattr(inner, "layer_types", None):
            inner.layer_types = inner.layer_types[:layers]
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    if wide:
        widen(model)
    return model


def passes(
    config: PretrainedConfig,
    dtype: torch.dtype,
    build: Build,
    tokens: int,
    read: tuple[int, int],
    critic: int,
    *,
    wide: bool,
    merged: bool,
    attention: Attention = Attention.BLOCKS,
) -> Passes:
    """Those of a row of ``tokens`` tokens and of ``read`` prompts that long, by the actor that ``build`` makes.

    ``critic``: tokens of the critic prompt after every state; 0 for none. ``merged``: the engine that reads has the
    adapter in its weights, so its passes keep nothing for it. ``attention``: how this machine's processor is to compute
    it; a GPU's ways keep no more than ``blocks``. Raises ModelError for attention that cannot be computed so here.
    """
    inner = config.get_text_config(decoder=True)
    learning = []
    for layers in (1, 2):
        with torch.device("meta"):
            actor = build(hollow(config, dtype, layers, wide=wide))
        on_cpu(actor)
        for part in actor.modules():
            if isinstance(part, ActorCritic):
                part.choose(attention, part.causal_model)
        scale = max(1.0, tokens / MOST_TOKENS)
        actor.chunk = max(1, round(actor.chunk / scale))
        row = _row(round(tokens / scale), inner.vocab_size, critic)
        learning.append(tokens / len(row) * _peak(actor, partial(_learn, actor, row)))
    adapter = actor.model.disable_adapter() if merged and isinstance(actor.model, PeftModel) else nullcontext()
    with torch.no_grad(), adapter:
        prompts, each = read
        some = _row(min(each, MOST_TOKENS), inner.vocab_size, 0)  # layers take turns: two of them take no more than one
        reading = prompts * each / len(some) * _peak(actor, partial(actor.hidden, some))
    one, two = learning
    return Passes(round(one + (inner.num_hidden_layers - 1) * (two - one)), round(reading))


def size(tensors: Iterable[Tensor]) -> int:
    """Bytes of tensors."""
    return sum(x.numel() * x.element_size() for x in tensors)


class _Live(TorchDispatchMode):
    """Counts the bytes of all storages that are made while it is on, until they are freed."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.peak = 0
        self._known: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, Tensor):
                self._made(x.untyped_storage())
        return out

    def _made(self, storage: torch.UntypedStorage) -> None:
        key, held = id(storage), storage.nbytes()
        if key in self._known:
            return

        def freed(_: object) -> None:
            self.bytes -= held
            del self._known[key]

        self._known[key] = weakref.ref(storage, freed)
        self.bytes += held
        self.peak = max(self.peak, self.bytes)


def _peak(actor: ActorCritic, run: Callable[[], object]) -> int:
    """Bytes that ``run`` makes at most at once, beside the actor's own tensors."""
    live = _Live()
    with live:
        for x in (*actor.parameters(), *actor.buffers()):
            live._made(x.untyped_storage())
        before = live.peak = live.bytes
        run()
    for x in actor.parameters():
        x.grad = None
    return live.peak - before


def _learn(actor: ActorCritic, row: Batch) -> None:
    new: Forward = actor(row)
    total = new.logp_T.sum()
    for value in (new.value_S, new.value_T):
        total = total if value is None else total + value.sum()
    total.backward()


def on_cpu(hollow: nn.Module) -> None:
    """Puts tensors on the CPU, without numbers, in the place of those of the meta device, which no CPU kernel takes."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    known: dict[int, Tensor] = {}
    for module in hollow.modules():
        stores: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
        for store in stores:
            for name, x in store.items():
                if x is None:
                    continue
                if id(x) not in known:
                    fake = FakeTensor(mode, x.detach(), torch.device("cpu"))
                    known[id(x)] = nn.Parameter(fake, x.requires_grad) if isinstance(x, nn.Parameter) else fake
                store[name] = known[id(x)]


def _row(tokens: int, vocabulary: int, critic: int) -> Batch:
    """One episode of about this many tokens, at least one turn of it."""

    def some(n: int) -> tuple[int, ...]:
        return tuple(i % vocabulary for i in range(n))

    turn = ACTION + OBSERVATION + critic
    root = state = Node(Kind.STATE, some(OBSERVATION))
    for _ in range(max(1, (tokens - OBSERVATION - critic) // turn)):
        action = state.add(Node(Kind.ACTION, some(ACTION), logp=(0.0,) * ACTION))
        state = action.add(Node(Kind.STATE, some(OBSERVATION)))
    return pack([root], some(critic) if critic else None)
