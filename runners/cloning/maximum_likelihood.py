"""Maximum likelihood of the demonstrator's tokens, and of what a critic needs.

Legend of the shape suffixes: T tokens, N rows picked from T, D width, V vocabulary.
"""

from collections.abc import Sequence

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor, nn
from transformers import PreTrainedModel

from agents.model.actor_critic import ActorCritic
from agents.tiny.critic_exercises import PredictSuccess, Recall
from agents.tiny.muon import Muon
from agents.tree import Batch, Node
from agents.tree.packing import pack
from runners.cloning.settings import PretrainSettings


def fit(
    model: PreTrainedModel,
    chains: Sequence[Node],
    drills: Sequence[Node],
    critic_prompt: Sequence[int],
    settings: PretrainSettings,
    bar: Progress,
    console: Console,
) -> None:
    """Trains ``model`` on demonstrations (``chains``) and reading exercises (``drills``).

    ``recall`` and ``predict`` add exercises after the critic prompt, or with ``recall_bare`` without it.
    """
    actor = ActorCritic(model, lora=None, critic=None)
    exercises: list[tuple[float, nn.Module]] = []
    if settings.recall > 0:
        exercises.append((settings.recall, Recall(model, settings.seed)))
    if settings.predict > 0:
        exercises.append((settings.predict, PredictSuccess(model, settings.seed)))
    inside = [p for name, p in model.named_parameters() if p.ndim == 2 and ".layers." in name]
    rest = [p for p in model.parameters() if all(p is not q for q in inside)]
    rest += [p for _, exercise in exercises for p in exercise.parameters()]
    optimizers: list[tuple[torch.optim.Optimizer, float]] = [
        (Muon(inside, settings.muon_lr), settings.muon_lr),
        (torch.optim.AdamW(rest, lr=settings.adam_lr, betas=(0.9, 0.95), weight_decay=0.0), settings.adam_lr),
    ]
    ended = {id(node) for tree in chains for node in tree.walk()}  # an exercise has no success to predict
    rng = np.random.default_rng([settings.seed, 2])
    job = bar.add_task("behaviour cloning", total=settings.steps, note="")
    recent: list[float] = []
    for step in range(settings.steps):
        drilled = rng.random(settings.batch) < (settings.drills if drills else 0.0)
        picks = [
            drills[int(rng.integers(len(drills)))] if d else chains[int(rng.integers(len(chains)))] for d in drilled
        ]
        prompt = () if settings.recall_bare and step % 2 else critic_prompt
        batch = pack(picks, prompt if exercises else None, valued=None if settings.recall > 0 else ended)
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
        note = f"loss {sum(recent) / len(recent):.3f}"
        bar.update(job, advance=1, note=note)
        if not console.is_terminal and (step + 1) % 200 == 0:
            console.print(f"behaviour cloning: step {step + 1} of {settings.steps}, {note}")


def _surprise(actor: ActorCritic, hidden_TD: Tensor, batch: Batch, row_N: Tensor) -> Tensor:
    """Mean of -log π, in nats, over the tokens of these rows."""
    logits_NV = actor.logits(hidden_TD.index_select(0, batch.parent_T[row_N]))
    return -torch.log_softmax(logits_NV, dim=-1).gather(1, batch.token_T[row_N, None]).mean()


def _texts(batch: Batch, trees: Sequence[Node], drilled: Sequence[bool]) -> Tensor:
    """Rows of the tokens, but for the first, of the roots of those trees that are exercises."""
    starts = torch.nonzero(batch.parent_T < 0).squeeze(1).tolist()
    result = [
        torch.arange(start + 1, start + len(tree.tokens))
        for start, tree, drill in zip(starts, trees, drilled, strict=True)
        if drill
    ]
    return torch.cat(result) if result else batch.parent_T.new_empty(0)
