"""Makes the tiny model: a tokenizer from an environment's texts, and a small transformer that clones demonstrations.

The demonstrator is the environment's scripted expert with a systematic flaw: it makes the same kind of mistake most of
the time, so that the clone is wrong on purpose and reinforcement learning has something to mend. ``train.py --model
tiny`` calls this by itself; the result is cached by the hash of all that went into it.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
import runners

if __name__ == "__main__":
    runners.check_install()

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import logging as hf_logging

from agent_envs import registry
from agent_envs.cache import build_once, cache_dir
from agent_envs.core import Drill, SettingsError, TextEnv
from agents.model.actor_critic import ActorCritic
from agents.text.chat import CRITIC_TEXT, Chat
from agents.tiny import critic_exercises, muon
from agents.tiny import model as tiny_model
from agents.tiny import tokenizer as tiny_tokenizer
from agents.tiny.critic_exercises import Foretell, Recall
from agents.tiny.model import TinySettings, build_model
from agents.tiny.muon import Muon
from agents.tiny.tokenizer import build_tokenizer
from agents.tree import Batch, Node
from agents.tree.packing import pack
from runners import demonstrations
from runners.config import dump_json, parse, plain, run_program
from runners.demonstrations import Demonstration, chain, demonstrate, drill_tree

SAMPLE = 1500
"""Demonstrations that the vocabulary is read from."""


@dataclass(frozen=True)
class PretrainSettings:
    """How the tiny model is made."""

    seed: int = 0
    """Seed of the weights, the demonstrations and their order."""
    flaw: float = 0.65
    """How often the demonstrator makes its systematic mistake where it can."""
    demonstrations: int = 15000
    """Episodes of training tasks that are shown."""
    steps: int = 2000
    """Gradient steps."""
    batch: int = 8
    """Demonstrations a step."""
    muon_lr: float = 0.02
    """Peak learning rate of the matrices inside the layers (Muon)."""
    adam_lr: float = 4e-3
    """Peak learning rate of everything else (AdamW)."""
    warmup: int = 50
    """Steps of linear warm-up; after them the rates fall linearly to a twentieth."""
    drills: float = 0.1
    """Share of the batch that are the environment's reading exercises, where it has some."""
    drill_texts: int = 0
    """Texts that are exercised on; as many as demonstrations when 0. They cost less than those do."""
    read: float = 0.0
    """Weight of telling each next token of the texts that are exercised on, for an environment in which something is
    to be found that does not belong there."""
    recall: float = 0.0
    """Weight of a second exercise: to know, after the critic prompt, the last tokens that were read before it. A large
    model looks back at what it saw by itself; a tiny one that never learned it has nothing to value a state by. The
    layer that answers is thrown away, what it read from stays."""
    foretell: float = 0.0
    """Weight of a third exercise: to tell, after the critic prompt, whether the demonstration ends well, and what the
    environment's oracle says of the state. A critic sees a mistake only where the model has learned to notice it."""
    recall_prompt: str = CRITIC_TEXT
    """The critic prompt of these two exercises; the one that the critic will have (``--critic.prompt``)."""
    shape: TinySettings = field(default_factory=TinySettings)
    """Shape of the transformer."""

    def __post_init__(self) -> None:
        if self.drill_texts < 0:
            raise ValueError(f"pretrain: drill_texts must be at least 0, not {self.drill_texts}")
        if self.drill_texts and not self.drills:
            raise ValueError("pretrain: drill_texts acts with drills above 0 only")
        if self.read and not self.drills:
            raise ValueError("pretrain: read acts with drills above 0 only")
        for name in ("read", "recall", "foretell"):
            if getattr(self, name) < 0:
                raise ValueError(f"pretrain: {name} must not be negative, but is {getattr(self, name)}")
        if self.recall_prompt != CRITIC_TEXT and not (self.recall or self.foretell):
            raise ValueError("pretrain: recall_prompt acts with recall or foretell above 0 only")


@dataclass(frozen=True)
class PretrainProgram:
    """Make the tiny model for an environment and put it into the cache."""

    env: str = "wiki"
    """Environment whose texts and scripted expert are used."""


def ensure_tiny(env: TextEnv, settings: PretrainSettings, console: Console) -> Path:
    """The folder of the tiny model for this environment, made first when the cache does not have it."""
    made_by = (tiny_model, tiny_tokenizer, muon, critic_exercises, demonstrations, sys.modules[__name__])
    sources = "".join(inspect.getsource(module) for module in made_by)
    identity = dump_json(
        {
            "env": env.name,
            "config": plain(env.config),
            "pretrain": plain(settings),
            "texts": _fingerprint(env),
            "code": hashlib.sha256(sources.encode()).hexdigest(),
            "torch": torch.__version__.split("+")[0],
        }
    )
    name = f"{env.name}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
    place = cache_dir() / "tiny" / name
    if place.is_dir():
        console.print(f"tiny model: {place} (made earlier)", soft_wrap=True)
    else:
        console.print(f"tiny model: cloning the flawed demonstrator of {env.name!r} into {place}", soft_wrap=True)

    def build(folder: Path) -> None:
        _make(env, settings, console, folder)
        (folder / "made_from.json").write_text(identity, "utf-8")

    return build_once(place, build)


def _fingerprint(env: TextEnv) -> str:
    """Hash of the lexicon and of a few demonstrations and exercises: it changes when the environment's texts or its
    expert do."""
    rng = np.random.default_rng(0)
    tasks = env.tasks("train")
    picks = rng.integers(0, len(tasks), size=20)
    shown = [(demonstrate(env, tasks[int(i)], flaw=0.5, rng=rng), env.drill(tasks[int(i)], rng)) for i in picks]
    return hashlib.sha256(repr((env.lexicon(), shown)).encode("utf-8", "surrogatepass")).hexdigest()


def _make(env: TextEnv, settings: PretrainSettings, console: Console, folder: Path) -> None:
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(), TimeRemainingColumn(), console=console, disable=not console.is_terminal,
    )  # fmt: skip
    with bar:
        shown = list(_demonstrations(env, settings, bar))
        texts = [text for one in shown[:SAMPLE] for pair in (one.head, *one.turns) for text in pair]
        tokenizer = build_tokenizer(texts, [*env.lexicon(), CRITIC_TEXT])
        chat = Chat(tokenizer)
        chains = [chain(chat, one) for one in shown]
        drills = [drill_tree(chat, drill) for drill in _drills(env, settings, settings.drill_texts or len(chains))]
        if settings.read and not drills:
            raise SettingsError(f"pretrain: {env.name} has no texts that are exercised on: leave out read")
        model = build_model(tokenizer, settings.shape, settings.seed)
        _train(model, chains, drills, chat.critic_prompt(settings.recall_prompt), settings, bar, console)
    hf_logging.disable_progress_bar()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _demonstrations(env: TextEnv, settings: PretrainSettings, bar: Progress) -> Iterator[Demonstration]:
    rng = np.random.default_rng(settings.seed)
    tasks = env.tasks("train")
    rounds = -(-settings.demonstrations // len(tasks))
    order = np.concatenate([rng.permutation(len(tasks)) for _ in range(rounds)])[: settings.demonstrations]
    for i in bar.track(order, description="demonstrations", task_id=bar.add_task("demonstrations", note="")):
        yield demonstrate(env, tasks[int(i)], flaw=settings.flaw, rng=rng, oracle=settings.foretell > 0)


def _drills(env: TextEnv, settings: PretrainSettings, n: int) -> Iterator[Drill]:
    rng = np.random.default_rng([settings.seed, 1])
    tasks = env.tasks("train")
    for i in rng.integers(0, len(tasks), size=n):
        drill = env.drill(tasks[int(i)], rng)
        if drill is not None:
            yield drill


def _train(
    model: PreTrainedModel,
    chains: Sequence[Node],
    drills: Sequence[Node],
    critic_prompt: Sequence[int],
    settings: PretrainSettings,
    bar: Progress,
    console: Console,
) -> None:
    """Maximum likelihood of the demonstrator's tokens; with ``recall`` and ``foretell`` also of what a critic needs."""
    actor = ActorCritic(model, lora=None, critic=None)
    exercises: list[tuple[float, nn.Module]] = []
    if settings.recall > 0:
        exercises.append((settings.recall, Recall(model, settings.seed)))
    if settings.foretell > 0:
        exercises.append((settings.foretell, Foretell(model, settings.seed)))
    inside = [p for name, p in model.named_parameters() if p.ndim == 2 and ".layers." in name]
    rest = [p for p in model.parameters() if all(p is not q for q in inside)]
    rest += [p for _, exercise in exercises for p in exercise.parameters()]
    optimizers: list[tuple[torch.optim.Optimizer, float]] = [
        (Muon(inside, settings.muon_lr), settings.muon_lr),
        (torch.optim.AdamW(rest, lr=settings.adam_lr, betas=(0.9, 0.95), weight_decay=0.0), settings.adam_lr),
    ]
    ended = {id(node) for tree in chains for node in tree.walk()}  # nothing is to be foretold of an exercise
    rng = np.random.default_rng([settings.seed, 2])
    job = bar.add_task("cloning", total=settings.steps, note="")
    recent: list[float] = []
    for step in range(settings.steps):
        drilled = rng.random(settings.batch) < (settings.drills if drills else 0.0)
        picks = [
            drills[int(rng.integers(len(drills)))] if d else chains[int(rng.integers(len(chains)))] for d in drilled
        ]
        batch = pack(picks, critic_prompt if exercises else None, asked=None if settings.recall > 0 else ended)
        hidden_TD = actor.hidden(batch)
        learned_T = (batch.action_T >= 0) & (batch.label_A[batch.action_T] != 0)
        loss = _surprise(actor, hidden_TD, batch, torch.nonzero(learned_T).squeeze(1))
        if settings.read > 0 and (read_N := _texts(batch, picks, drilled.tolist())).numel():
            loss = loss + settings.read * _surprise(actor, hidden_TD, batch, read_N)
        for weight, exercise in exercises:
            loss = loss + weight * exercise(hidden_TD, batch)
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        share = min(1.0, (step + 1) / settings.warmup) * max(0.05, 1 - step / settings.steps)
        for optimizer, peak in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = peak * share
            optimizer.step()
        recent = [*recent[-49:], loss.item()]
        bar.update(job, advance=1, note=f"loss {sum(recent) / len(recent):.3f}")
        if not console.is_terminal and (step + 1) % 200 == 0:
            console.print(f"cloning: step {step + 1} of {settings.steps}, loss {sum(recent) / len(recent):.3f}")


def _surprise(actor: ActorCritic, hidden_TD: Tensor, batch: Batch, row_N: Tensor) -> Tensor:
    """Mean of -log π, in nats, over the tokens of these rows."""
    logits_NV = actor.logits(hidden_TD.index_select(0, batch.parent_T[row_N]))
    return -torch.log_softmax(logits_NV, dim=-1).gather(1, batch.token_T[row_N, None]).mean()


def _texts(batch: Batch, trees: Sequence[Node], drilled: Sequence[bool]) -> Tensor:
    """Rows of the tokens, but for the first, of the roots of those trees that are exercises."""
    starts = torch.nonzero(batch.parent_T < 0).squeeze(1).tolist()
    found = [
        torch.arange(start + 1, start + len(tree.tokens))
        for start, tree, drill in zip(starts, trees, drilled, strict=True)
        if drill
    ]
    return torch.cat(found) if found else batch.parent_T.new_empty(0)


def main() -> None:
    def parts(program: PretrainProgram) -> Mapping[str, type]:
        return {program.env: registry.env_class(program.env).Config, "pretrain": PretrainSettings}

    program, chosen = parse(PretrainProgram, parts, about=PretrainProgram.__doc__ or "")
    torch.set_num_threads(1)
    env = registry.make(program.env, chosen[program.env])
    print(ensure_tiny(env, chosen["pretrain"], Console(stderr=True)))


if __name__ == "__main__":
    run_program(main)
