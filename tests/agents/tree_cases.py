"""Trees of every shape, tiny models of every family, and the slow truth: one ordinary forward per state.

The truth is computed from the nodes alone, never from the arrays of a Batch.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from agents.model.actor_critic import ActorCritic
from agents.model.settings import LoraSettings
from agents.tree import Batch, Forward, Kind, Node

VOCABULARY = 61
CRITIC_PROMPT = (7, 8, 9, 7)
WINDOW = 12

# -- trees ----------------------------------------------------------------------------------------------------------


def some(rng: random.Random, low: int, high: int | None = None) -> tuple[int, ...]:
    """A run of random tokens."""
    return tuple(rng.randrange(VOCABULARY) for _ in range(rng.randint(low, high or low)))


def grow(rng: random.Random, state: Node, turns: int, version: int = 0) -> Node:
    """Adds a chain of ``turns`` turns and returns its last state, which may be empty."""
    for turn in range(turns):
        tokens = some(rng, 1, 7)
        action = Node(
            Kind.ACTION,
            tokens,
            logp=tuple(-rng.random() for _ in tokens),
            reward=rng.choice([0.0, 1.0, -0.5]),
            version=version,
        )
        last = turn == turns - 1
        state = state.add(action).add(Node(Kind.STATE, some(rng, 0 if last else 1, 5), terminated=last))
    return state


def root(rng: random.Random) -> Node:
    return Node(Kind.STATE, some(rng, 5, 9))


def chain(rng: random.Random, turns: int = 5) -> Node:
    start = root(rng)
    grow(rng, start, turns)
    return start


def group(rng: random.Random, size: int = 4) -> Node:
    start = root(rng)
    for _ in range(size):
        grow(rng, start, rng.randint(1, 3))
    return start


def forks(rng: random.Random) -> Node:
    """A chain from which two later states fork again."""
    start = root(rng)
    grow(rng, start, 4)
    trunk = [node for node in start.walk() if node.kind is Kind.STATE]
    grow(rng, trunk[1], 2)
    grow(rng, trunk[2], 1)
    grow(rng, trunk[2], 2)
    return start


def bushy(rng: random.Random, depth: int = 3) -> Node:
    """At least two actions at the root, one to three below."""
    start = root(rng)

    def expand(state: Node, depth: int, least: int) -> None:
        for _ in range(rng.randint(least, 3) if depth else 0):
            expand(grow(rng, state, 1), depth - 1, 1)

    expand(start, depth, 2)
    return start


SHAPES: dict[str, Callable[[random.Random], list[Node]]] = {
    "chain": lambda rng: [chain(rng)],
    "group": lambda rng: [group(rng)],
    "forks": lambda rng: [forks(rng)],
    "bushy": lambda rng: [bushy(rng)],
    "several": lambda rng: [chain(rng, 3), group(rng, 2), forks(rng)],
}


def trees(shape: str, seed: int = 0) -> list[Node]:
    return SHAPES[shape](random.Random(f"{shape} {seed}"))


# -- models ---------------------------------------------------------------------------------------------------------

SIZE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
CONFIGS = {
    "llama": lambda: LlamaConfig(**SIZE),
    "qwen2": lambda: Qwen2Config(**SIZE),
    "qwen3": lambda: Qwen3Config(**SIZE),
    "mistral": lambda: MistralConfig(**SIZE, sliding_window=WINDOW),
}
FAMILIES = tuple(CONFIGS)


def base(family: str = "llama", seed: int = 0) -> PreTrainedModel:
    """A random model whose weights are scaled until attention matters."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(CONFIGS[family]())
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.mul_(4)
    return model


def actor_critic(family: str = "llama", lora: LoraSettings | None = LoraSettings(rank=4), **options) -> ActorCritic:  # noqa: B008
    """LoRA and value head are moved away from their zeros, or they would hide differences."""
    model = ActorCritic(base(family), lora, **options)
    wake(model)
    return model


def wake(model: ActorCritic, seed: int = 1) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name or name.startswith("value_head.2"):
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))


# -- the slow truth -------------------------------------------------------------------------------------------------


def states(roots: list[Node]) -> Iterator[tuple[list[int], int]]:
    """For every state, in depth-first order: all tokens up to it, and how many of them are the action before it.

    The action is followed by the state's own tokens, so its position is counted from behind.
    """
    for start in roots:
        stack: list[tuple[Node, list[int]]] = [(start, [])]
        while stack:
            node, before = stack.pop()
            tokens = before + list(node.tokens)
            if node.kind is Kind.STATE:
                yield tokens, len(node.tokens)
            stack.extend((child, tokens) for child in reversed(node.children))


def actions(roots: list[Node]) -> list[Node]:
    return [node for start in roots for node in start.walk() if node.kind is Kind.ACTION]


def plain(model: ActorCritic, tokens: list[int]) -> tuple[Tensor, Tensor]:
    """(logits, last hidden states) of an ordinary forward of one path: no plan, no positions, no mask."""
    out = model.causal_model(input_ids=torch.tensor([tokens]), use_cache=False, output_hidden_states=True)
    return out.logits[0], out.hidden_states[-1][0]


def truth(model: ActorCritic, roots: list[Node], prompt: tuple[int, ...] = CRITIC_PROMPT) -> tuple[Tensor, Tensor]:
    """(log-probabilities of all action tokens in depth-first order, value of every state).

    One forward per state: the path to it and the critic prompt; the action before the state is read from the same one.
    """
    lengths = iter(len(node.tokens) for node in actions(roots))
    logp, value = [], []
    for tokens, own in states(roots):
        logits, hidden = plain(model, [*tokens, *prompt])
        value.append(model.value_head(hidden[-1:])[0, 0])
        if len(tokens) > own:  # not a root
            stop = len(tokens) - own
            rows = torch.arange(stop - next(lengths), stop)
            table = torch.log_softmax(logits[rows - 1] / model.temperature, dim=-1)
            logp.append(table[torch.arange(len(rows)), torch.tensor(tokens)[rows]])
    return torch.cat(logp), torch.stack(value)


def of_actions(batch: Batch, out: Forward) -> Tensor:
    """The packed log-probabilities in the order of ``truth``."""
    return out.logp_T[batch.action_T >= 0]


def loss_of(logp_N: Tensor, value_S: Tensor, action_N: Tensor) -> Tensor:
    """A clipped surrogate with a group-wide coupling and a value regression, with fixed pseudo-random weights."""
    generator = torch.Generator().manual_seed(3)
    count = int(action_N.max()) + 1
    adv_A = torch.randn(count, generator=generator).to(logp_N.dtype)
    target_S = torch.randn(value_S.numel(), generator=generator).to(logp_N.dtype)
    score_A = logp_N.new_zeros(count).index_add(0, action_N, logp_N)
    ratio_A = (0.1 * (score_A - score_A.detach() + adv_A)).exp()
    surrogate_A = torch.minimum(ratio_A * adv_A, ratio_A.clamp(0.8, 1.2) * adv_A)
    coupled = torch.logsumexp(0.01 * score_A, dim=0)
    return (value_S - target_S).square().mean() - surrogate_A.mean() + coupled


@dataclass(frozen=True)
class Loss:
    total: Tensor


def coupled(batch: Batch) -> Callable[[Forward], Loss]:
    """`loss_of` a whole batch: no part can compute it alone."""

    def loss(out: Forward) -> Loss:
        mine = batch.action_T >= 0
        assert out.value_S is not None
        return Loss(loss_of(out.logp_T[mine], out.value_S, batch.action_T[mine]))

    return loss


def gradients(model: ActorCritic, loss: Tensor) -> list[Tensor]:
    trained = [p for p in model.parameters() if p.requires_grad]
    return list(torch.autograd.grad(loss, trained))


def relative(ours: list[Tensor], theirs: list[Tensor]) -> float:
    """The largest difference over all gradients, relative to the largest entry."""
    largest = max(float(g.abs().max()) for g in theirs)
    return max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True)) / largest
