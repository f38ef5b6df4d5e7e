"""The tiny model: a tokenizer from the texts of environments, and a small transformer made by behaviour cloning.

The demonstrator is an environment's scripted expert with a systematic flaw: it makes the same kind of mistake most of
the time, so that the behaviour-cloned model is wrong on purpose and reinforcement learning has something to fix. For
several environments one model is made, which sees as much of each as a model of that environment alone. The result is
cached by the hash of everything it was made from. The package has some with it (`packaged`).
"""

import hashlib
import inspect
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from transformers.utils import logging as hf_logging

from agent_envs.cache import build_once, cache_dir
from agent_envs.core import Drill, SettingsError, TextEnv
from agents.text.chat import Chat
from agents.text.settings import CRITIC_TEXT, ChatSettings, Tools
from agents.tiny import critic_exercises, muon
from agents.tiny import model as tiny_model
from agents.tiny import tokenizer as tiny_tokenizer
from agents.tiny.model import build_model
from agents.tiny.tokenizer import build_tokenizer
from agents.tree import Node
from runners.cloning import demonstrations, maximum_likelihood
from runners.cloning.demonstrations import Demonstration, chain, demonstrate, drill_tree
from runners.cloning.maximum_likelihood import fit
from runners.cloning.packaged import MADE_FROM, packaged
from runners.cloning.settings import PretrainSettings
from runners.command_line.blame import blamed
from runners.command_line.outputs import save
from runners.command_line.plain import dump_json, plain

SAMPLE = 1500
"""Demonstrations that the vocabulary is read from."""


def ensure_tiny(
    envs: Sequence[TextEnv], settings: PretrainSettings, console: Console, tools: Tools = Tools.OFF
) -> Path:
    """The folder of the tiny model for these environments, made first where neither the package nor the cache has it.
    With ``tools`` its demonstrator calls tools.

    Raises SettingsError for an environment without an expert.
    """
    envs = [env.offline() for env in envs]
    for env in envs:
        if not env.has_expert:
            raise SettingsError(f"{env.name} has no scripted expert for behaviour cloning: name a model with --model")
    made_from = _made_from(envs, settings, tools)
    names = "+".join(env.name for env in envs)
    if not settings.fresh and (there := packaged(names, made_from)):
        console.print(
            f"tiny model: of the package, for {names} (--pretrain.fresh makes one here)", soft_wrap=True, markup=False
        )
        return there
    identity = dump_json({**made_from, "code": _code(), "torch": torch.__version__.split("+")[0]})
    place = cache_dir() / "tiny" / f"{names}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
    if place.is_dir():
        console.print(f"tiny model: {place} (from the cache)", soft_wrap=True, markup=False)

    def build(folder: Path) -> None:
        whose = " and ".join(repr(env.name) for env in envs)
        console.print(
            f"tiny model: behaviour cloning of the flawed demonstrator of {whose}, into {place}",
            soft_wrap=True,
            markup=False,
        )
        _make(envs, settings, console, folder, tools)
        (folder / MADE_FROM).write_text(identity, "utf-8")

    return build_once(place, build)


def _made_from(envs: Sequence[TextEnv], settings: PretrainSettings, tools: Tools) -> dict[str, Any]:
    """What a tiny model depends on, but for the code that makes it."""
    played = [_identity(env) for env in envs]
    how = {name: value for name, value in plain(settings).items() if name != "fresh"}
    return {**(played[0] if len(played) == 1 else {"envs": played}), "pretrain": how, "tools": tools}


def _code() -> str:
    """Hash of the code that makes it."""
    made_by = (
        tiny_model,
        tiny_tokenizer,
        muon,
        critic_exercises,
        demonstrations,
        maximum_likelihood,
        sys.modules[__name__],
    )
    return hashlib.sha256("".join(inspect.getsource(module) for module in made_by).encode()).hexdigest()


def _identity(env: TextEnv) -> dict[str, Any]:
    """What the tiny model depends on of an environment."""
    with blamed(env.name, "to show how it is played"):
        return {"env": env.name, "config": plain(env.config), "texts": _fingerprint(env)}


def _fingerprint(env: TextEnv) -> str:
    """Hash of the lexicon and of a few demonstrations and exercises: it changes when the environment's texts or its
    expert do."""
    rng = np.random.default_rng(0)
    tasks = env.tasks("train")
    picks = rng.integers(0, len(tasks), size=20)
    shown = [(demonstrate(env, tasks[int(i)], flaw=0.5, rng=rng), env.drill(tasks[int(i)], rng)) for i in picks]
    return hashlib.sha256(repr((env.lexicon(), shown)).encode("utf-8", "surrogatepass")).hexdigest()


def _make(
    envs: Sequence[TextEnv], settings: PretrainSettings, console: Console, folder: Path, tools: Tools = Tools.OFF
) -> None:
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(), TimeRemainingColumn(), console=console, disable=not console.is_terminal,
    )  # fmt: skip
    with bar:
        shown: list[Demonstration] = []
        texts: list[str] = []
        for env in envs:
            with blamed(env.name, "to show how it is played"):
                own = list(_demonstrations(env, settings, bar, tools=tools is Tools.ON))
            texts += [text for one in own[:SAMPLE] for pair in (one.head, *one.turns) for text in pair]
            shown += own
        schemas = dict.fromkeys(json.dumps(tool, ensure_ascii=False) for one in shown for tool in one.tools)
        words = dict.fromkeys(word for env in envs for word in env.lexicon())
        tokenizer = build_tokenizer(texts, [*words, CRITIC_TEXT, *schemas])
        chat = Chat(tokenizer, ChatSettings(tools=tools))
        chains = [_fitting(chain(chat, one), settings.shape.context) for one in shown]
        drills: list[Node] = []
        for env in envs:
            count = settings.drill_texts or len(chains) // len(envs)
            own_drills = [drill_tree(chat, drill) for drill in _drills(env, settings, count)]
            if settings.read and not own_drills:
                raise SettingsError(f"pretrain: {env.name} has no reading exercises: leave out read")
            drills += own_drills
        model = build_model(tokenizer, settings.shape, settings.seed)
        whole = replace(settings, steps=settings.steps * len(envs))
        fit(model, chains, drills, chat.critic_prompt(settings.recall_prompt), whole, bar, console)
    hf_logging.disable_progress_bar()
    save(model, folder)
    save(tokenizer, folder)


def _fitting(shown: Node, context: int) -> Node:
    """The demonstration. Raises SettingsError where the model cannot read all of it."""
    if (tokens := sum(len(node.tokens) for node in shown.walk())) > context:
        raise SettingsError(
            f"pretrain: a demonstration has {tokens} tokens, and the tiny model reads {context}: raise "
            "--pretrain.shape.context, or name a model with --model"
        )
    return shown


def _demonstrations(env: TextEnv, settings: PretrainSettings, bar: Progress, *, tools: bool) -> Iterator[Demonstration]:
    rng = np.random.default_rng(settings.seed)
    tasks = env.tasks("train")
    rounds = -(-settings.demonstrations // len(tasks))
    order = np.concatenate([rng.permutation(len(tasks)) for _ in range(rounds)])[: settings.demonstrations]
    for i in bar.track(order, description="demonstrations", task_id=bar.add_task("demonstrations", note="")):
        yield demonstrate(env, tasks[int(i)], flaw=settings.flaw, rng=rng, oracle=settings.predict > 0, tools=tools)


def _drills(env: TextEnv, settings: PretrainSettings, n: int) -> Iterator[Drill]:
    rng = np.random.default_rng([settings.seed, 1])
    tasks = env.tasks("train")
    for i in rng.integers(0, len(tasks), size=n):
        drill = env.drill(tasks[int(i)], rng)
        if drill is not None:
            yield drill
