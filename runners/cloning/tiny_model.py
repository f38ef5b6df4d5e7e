"""The tiny model: a tokenizer from an environment's texts, and a small transformer made by behaviour cloning.

The demonstrator is the environment's scripted expert with a systematic flaw: it makes the same kind of mistake most of
the time, so that the behaviour-cloned model is wrong on purpose and reinforcement learning has something to fix. The
result is cached by the hash of everything it was made from.
"""

import hashlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from transformers.utils import logging as hf_logging

from agent_envs.cache import build_once, cache_dir
from agent_envs.core import Drill, SettingsError, TextEnv
from agents.text.chat import Chat
from agents.text.settings import CRITIC_TEXT
from agents.tiny import critic_exercises, muon
from agents.tiny import model as tiny_model
from agents.tiny import tokenizer as tiny_tokenizer
from agents.tiny.model import build_model
from agents.tiny.tokenizer import build_tokenizer
from runners.cloning import demonstrations, maximum_likelihood
from runners.cloning.demonstrations import Demonstration, chain, demonstrate, drill_tree
from runners.cloning.maximum_likelihood import fit
from runners.cloning.settings import PretrainSettings
from runners.command_line.plain import dump_json, plain

SAMPLE = 1500
"""Demonstrations that the vocabulary is read from."""


def ensure_tiny(env: TextEnv, settings: PretrainSettings, console: Console) -> Path:
    """The folder of the tiny model for this environment, made first when the cache does not have it.

    Raises SettingsError for an environment without an expert.
    """
    if not env.has_expert:
        raise SettingsError(f"{env.name} has no scripted expert to clone: name a model with --model")
    made_by = (
        tiny_model,
        tiny_tokenizer,
        muon,
        critic_exercises,
        demonstrations,
        maximum_likelihood,
        sys.modules[__name__],
    )
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
        console.print(f"tiny model: {place} (from the cache)", soft_wrap=True)
    else:
        console.print(
            f"tiny model: behaviour cloning of the flawed demonstrator of {env.name!r}, into {place}", soft_wrap=True
        )

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
            raise SettingsError(f"pretrain: {env.name} has no reading exercises: leave out read")
        model = build_model(tokenizer, settings.shape, settings.seed)
        fit(model, chains, drills, chat.critic_prompt(settings.recall_prompt), settings, bar, console)
    hf_logging.disable_progress_bar()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _demonstrations(env: TextEnv, settings: PretrainSettings, bar: Progress) -> Iterator[Demonstration]:
    rng = np.random.default_rng(settings.seed)
    tasks = env.tasks("train")
    rounds = -(-settings.demonstrations // len(tasks))
    order = np.concatenate([rng.permutation(len(tasks)) for _ in range(rounds)])[: settings.demonstrations]
    for i in bar.track(order, description="demonstrations", task_id=bar.add_task("demonstrations", note="")):
        yield demonstrate(env, tasks[int(i)], flaw=settings.flaw, rng=rng, oracle=settings.predict > 0)


def _drills(env: TextEnv, settings: PretrainSettings, n: int) -> Iterator[Drill]:
    rng = np.random.default_rng([settings.seed, 1])
    tasks = env.tasks("train")
    for i in rng.integers(0, len(tasks), size=n):
        drill = env.drill(tasks[int(i)], rng)
        if drill is not None:
            yield drill
