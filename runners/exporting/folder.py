"""Writes an export, and reads it again with transformers and peft alone.

Invariant: what is written needs no Turnwise to be loaded, and its log-probabilities and values were compared with those
of the model that was trained.

Legend: N tokens of an answer, T tokens of a path, D width, V vocabulary.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import linear, silu
from transformers import AutoModelForCausalLM

from agents.model import adapter_io
from agents.model.actor_critic import ActorCritic
from agents.model.separate_critic import FILE as CRITIC_FILE
from agents.model.separate_critic import SeparateActorCritic
from agents.text.chat import Chat
from agents.tree import Kind, Node
from agents.tree.packing import pack
from runners.command_line.errors import UserError
from runners.command_line.outputs import save
from runners.command_line.plain import dump_json
from runners.loading.base_model import Base

BASE, CRITIC, DETAILS = "base", "critic", "turnwise.json"
"""Parts of an export. The critic has a folder of its own, because vLLM takes every safetensors file beside a model for
a part of it."""
LARGEST = 1e-4
"""Difference of a log-probability in float32 above which an export is not the model that was trained. Rounding alone
gives about 1e-6."""


@dataclass(frozen=True)
class Check:
    """How far the export, loaded by transformers and peft, is from the trained model."""

    tokens: int
    logp: float
    """Largest difference of a token's log-probability at the run's temperature."""
    value: float | None
    """Difference of the last state's value; None without a value head."""


@dataclass(frozen=True)
class _Probe:
    """A short conversation, and what the trained model says of it."""

    path_T: tuple[int, ...]
    answer: int
    """Where the answer begins."""
    prompt: tuple[int, ...] | None
    """The critic prompt after the path; None where no value head reads one."""
    temperature: float
    logp_N: Tensor
    value: float | None


def write_adapter(actor: ActorCritic, base: Base, name: str, folder: Path) -> None:
    """The adapter for the base model ``name``, with its tokenizer, and the critic."""
    assert isinstance(actor.model, PeftModel)
    actor.model.peft_config["default"].base_model_name_or_path = name
    actor.save(folder)
    save(base.chat.tokenizer, folder)
    for file in (adapter_io.HEAD_FILE, CRITIC_FILE):
        if (folder / file).exists():
            (folder / CRITIC).mkdir()
            (folder / file).rename(folder / CRITIC / file)


def write_base(base: Base, folder: Path) -> None:
    """The base model as the run used it; it must be called before the adapter is put into it."""
    save(base.model, folder)
    save(base.chat.tokenizer, folder)


def write_merged(actor: ActorCritic, base: Base, folder: Path) -> None:
    """One whole model, with its tokenizer, and the critic. The actor is used up."""
    assert isinstance(actor.model, PeftModel)
    save(actor.model.merge_and_unload(), folder)
    save(base.chat.tokenizer, folder)
    if actor.value_head is not None:
        (folder / CRITIC).mkdir()
        adapter_io.write(actor.value_head.state_dict(), folder / CRITIC / adapter_io.HEAD_FILE)
    if isinstance(actor, SeparateActorCritic):
        (folder / CRITIC).mkdir()
        adapter_io.write(actor.critic_state(), folder / CRITIC / CRITIC_FILE)


def write_details(folder: Path, details: dict[str, Any]) -> None:
    """``turnwise.json``: ``details``, and the sha256 of every other file of the export."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != DETAILS)
    sums = {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    (folder / DETAILS).write_text(dump_json({**details, "sha256": sums}), "utf-8")


@torch.no_grad()
def ask(actor: ActorCritic, chat: Chat, prompt: tuple[int, ...] | None) -> _Probe:
    """What the trained model says of a short conversation."""
    question = chat.prompt("You act in an environment, one turn at a time.", "What do you do first?")
    answer = (*chat.encode("I look around, and then I choose."), chat.end_id)
    root = Node(Kind.STATE, question)
    action = root.add(Node(Kind.ACTION, answer, logp=(0.0,) * len(answer)))
    seen = chat.observation("Nothing has changed.", closed=True)
    action.add(Node(Kind.STATE, seen))
    batch = pack([root], prompt, actor.device)
    result = ActorCritic.forward(actor, batch)
    logp_N = result.logp_T[batch.action_T >= 0].cpu()
    value = None if result.value_S is None else float(result.value_S[-1])
    return _Probe((*question, *answer, *seen), len(question), prompt, actor.temperature, logp_N, value)


@torch.no_grad()
def check(folder: Path, probe: _Probe, dtype: torch.dtype, device: torch.device, base: str | None) -> Check:
    """Loads the export as another program would, ``base`` being the base model of an adapter, and compares.

    Raises UserError where a float32 export is not the trained model.
    """
    model: Any = AutoModelForCausalLM.from_pretrained(base or folder, dtype=dtype).to(device)
    if base is not None:
        model = PeftModel.from_pretrained(model, folder)
    model.eval()
    read_T = torch.tensor([probe.path_T + (probe.prompt or ())], device=device)
    out = model(read_T, output_hidden_states=True)
    logp_TV = torch.log_softmax(out.logits[0].float() / probe.temperature, -1)
    end = probe.answer + len(probe.logp_N)
    told_N = read_T[0, probe.answer : end, None]
    logp_N = logp_TV[probe.answer - 1 : end - 1].gather(1, told_N).squeeze(1).cpu()
    logp = float((logp_N - probe.logp_N).abs().max())
    value = None
    if probe.value is not None:
        value = abs(head_value(folder / CRITIC / adapter_io.HEAD_FILE, out.hidden_states[-1][0, -1]) - probe.value)
    if dtype == torch.float32 and not max(logp, value or 0.0) <= LARGEST:
        raise UserError(f"{folder} is not the trained model: loaded again, it differs by {max(logp, value or 0.0):.1e}")
    return Check(len(logp_N), logp, value)


def head_value(file: Path, hidden_D: Tensor) -> float:
    """The value that a saved head gives a hidden state, written as the model card writes it."""
    head = load_file(file, device=str(hidden_D.device))
    x = (hidden_D.float() - head.get("0.mean_D", 0)) / head.get("0.deviation_D", 1)
    layers = sorted(int(name.split(".")[0]) for name in head if name.endswith(".weight"))
    for layer in layers:
        x = linear(x, head[f"{layer}.weight"], head[f"{layer}.bias"])
        x = x if layer == layers[-1] else silu(x)
    return float(x)
