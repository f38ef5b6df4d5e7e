"""Small models of four families, players of made-up multi-turn episodes, and the slow truth: a plain forward."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

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

from agents.engine import Completion, Engine, Request
from agents.engine.hf import HFEngine

VOCABULARY = 61
STOP = 3
WINDOW = 11
SIZE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
WIDE = SIZE | {"hidden_size": 128}
"""Heads of 32 numbers, the narrowest that every engine takes."""
WINDOWS = ["sliding_attention", "full_attention", "sliding_attention"]
FAMILIES = {
    "llama": lambda size: LlamaConfig(**size),
    "qwen2": lambda size: Qwen2Config(**size),
    "qwen3": lambda size: Qwen3Config(**size, head_dim=12 if size is SIZE else 32),
    "mistral": lambda size: MistralConfig(**size, sliding_window=WINDOW),
    "mixed": lambda size: Qwen3Config(
        **size,
        head_dim=8 if size is SIZE else 32,
        use_sliding_window=True,
        sliding_window=WINDOW,
        layer_types=WINDOWS,
    ),
}


def model(family: str = "llama", seed: int = 0, size: dict[str, int] = SIZE) -> PreTrainedModel:
    """Random weights, scaled up so that attention looks at something and greedy choices are clear."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = AutoModelForCausalLM.from_config(FAMILIES[family](size), attn_implementation="sdpa").eval()
        with torch.no_grad():
            for parameter in made.parameters():
                if parameter.ndim > 1:
                    parameter.mul_(5 * (size["hidden_size"] / 32) ** -0.5)
    return made


def some(rng: random.Random, low: int, high: int) -> tuple[int, ...]:
    return tuple(rng.randrange(4, VOCABULARY) for _ in range(rng.randint(low, high)))


@dataclass
class Session:
    """What a made-up episode will be told, and what it became."""

    turns: list[Request]
    tokens: tuple[int, ...] = ()
    spoken: list[tuple[int, Completion]] = field(default_factory=list)
    """Where each completion begins."""


def sessions(n: int, seed: int = 0, turns: tuple[int, int] = (1, 4), long: int = 5) -> dict[int, Session]:
    """``n`` episodes of several turns; every ``long``-th has a prompt that makes the cache grow."""
    rng = random.Random(seed)
    made = {}
    for i in range(n):
        made[i] = Session([])
        for turn in range(rng.randint(*turns)):
            first = (120, 170) if i % long == long - 1 else (1, 20)
            tokens = some(rng, *(first if turn == 0 else (0, 14)))
            made[i].turns.append(Request(i, tokens, rng.randint(1, 9), seed=rng.randrange(1 << 40)))
    return made


def play(engine: Engine, todo: dict[int, Session], delay: int = 0, order: Sequence[int] | None = None) -> None:
    """Plays all sessions, as many at once as there are slots. An environment takes 0 to ``delay`` engine steps."""
    rng = random.Random(1)
    waiting = list(order if order is not None else todo)
    turn: dict[int, int] = {}
    due: list[tuple[int, int]] = []
    now = 0
    while waiting or turn:
        while waiting and len(turn) < engine.slots:
            name = waiting.pop(0)
            turn[name] = 0
            due.append((now, name))
        for when, name in [x for x in due if x[0] <= now]:
            due.remove((when, name))
            engine.submit(todo[name].turns[turn[name]])
        for done in engine.step():
            session = todo[done.session]
            session.tokens += session.turns[turn[done.session]].tokens
            session.spoken.append((len(session.tokens), done))
            session.tokens += done.tokens
            turn[done.session] += 1
            if turn[done.session] == len(session.turns):
                engine.close_session(done.session)
                del turn[done.session]
            else:
                due.append((now + rng.randint(0, delay), done.session))
        now += 1
    assert engine.pending == 0


@torch.no_grad()
def plain(reference: PreTrainedModel, tokens: Sequence[int], temperature: float = 1.0) -> Tensor:
    """(T, V) log-probabilities of one ordinary forward over the whole sequence."""
    logits = reference(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
    return (logits.float() / temperature).log_softmax(-1)


def largest_error(reference: PreTrainedModel, todo: dict[int, Session], temperature: float = 1.0) -> float:
    """Largest difference of a recorded log-probability or entropy from the plain forward's."""
    worst = 0.0
    for session in todo.values():
        logp_TV = plain(reference, session.tokens, temperature)
        for start, done in session.spoken:
            at_NV = logp_TV[start - 1 : start - 1 + len(done.tokens)]
            logp_N = at_NV.gather(1, torch.tensor(done.tokens)[:, None])[:, 0]
            entropy_N = -(at_NV.exp() * at_NV).sum(-1)
            worst = max(worst, (logp_N - torch.tensor(done.logp)).abs().max().item())
            worst = max(worst, (entropy_N - torch.tensor(done.entropy)).abs().max().item())
    return worst


def engine_of(made: PreTrainedModel, slots: int = 3, **options: object) -> HFEngine:
    return HFEngine(made, [STOP], slots=slots, max_length=400, **options)  # type: ignore[arg-type]


def one(engine: Engine, request: Request) -> Completion:
    """Serves a single request; what else completes meanwhile is dropped."""
    engine.submit(request)
    while True:
        for done in engine.step():
            if done.session == request.session:
                return done


def again(todo: dict[int, Session], **changes: object) -> dict[int, Session]:
    """The same requests, not yet played."""
    return {
        name: Session([replace(r, **changes) for r in session.turns])  # type: ignore[arg-type]
        for name, session in todo.items()
    }
