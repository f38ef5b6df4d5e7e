"""The learner: the trees of an update in, optimiser steps out.

Invariant: what ``learn`` computes depends on the trees and on the state that ``tensors`` and ``counters`` save, on
nothing else. A step whose loss or gradient is not finite changes nothing and is counted.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import add
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from agents.model.actor_critic import ActorCritic
from agents.tree import Batch, Forward
from agents.tree.chunked_backward import assemble, backward, cut, forward_parts, with_graph
from agents.tree.episode import EpisodeId
from agents.tree.merge import Tree
from agents.tree.packing import pack
from agents.tree.ranks import Ranks
from agents.tree.threads import backward_in_threads, forward_in_threads, graph_in_threads
from agents.tree.token_budget import TokenBudget
from agents.tree.unpacked import backward_apart, forward_apart
from algorithms.base import Algorithm, Loss
from algorithms.formulas.mismatch import (
    Correction,
    Masked,
    corrected,
    correction_weight,
    mismatch_stats,
    without_masked,
)
from algorithms.formulas.policy_loss import policy_moved
from runners.command_line.errors import UserError
from runners.loading.reproducible import reproducible
from runners.run_folder.checkpoint import OPTIMIZER
from runners.settings.old_logp import AGREE, OldLogp
from runners.settings.train_settings import Train
from runners.statistics.intervals import mean
from runners.training.credited import Credited, credited
from runners.training.minibatch import NOT_FINITE, TOO_FAR, Minibatch, cut_evenly
from runners.training.replay import KEY, Kept, Replay
from runners.training.step_back import StepBack

KL_EVERY = 5
"""Updates between measurements of the divergence from the start, where the loss does not need it."""


@dataclass
class Learned:
    """Results of one update."""

    row: dict[str, float] = field(default_factory=dict)
    credited: dict[EpisodeId, Credited] = field(default_factory=dict)
    untrained: dict[EpisodeId, str] = field(default_factory=dict)
    """Episodes of which no step was taken, each with the reason."""


class Learner:
    """The trained model, its optimiser, and the algorithm whose loss it descends.

    ``ranks``: the processes that share its passes, where there are several.
    """

    def __init__(
        self,
        model: ActorCritic,
        algorithm: Algorithm[Any],
        critic_prompt: Sequence[int] | None,
        train: Train,
        ranks: Ranks | None = None,
    ) -> None:
        self.ranks = ranks
        self.model, self.algorithm, self.critic_prompt, self.train = model, algorithm, critic_prompt, train
        groups = [
            {"params": model.policy_parameters(), "lr": train.lr, "peak": train.lr},
            {"params": model.value_parameters(), "lr": train.value_lr, "peak": train.value_lr},
        ]
        self.optimizer = torch.optim.AdamW(
            [group for group in groups if group["params"]], betas=(0.9, 0.95), weight_decay=0.0
        )
        parameters = [group["params"] for group in self.optimizer.param_groups]
        # A critic that shares nothing with the policy must not decide how long the policy's step is either.
        self.clipped = parameters if algorithm.needs.token_critic else [[p for group in parameters for p in group]]
        self.whole: Callable[..., Forward] = forward_parts
        """Passes of a model that one thread at a time may call: with LoRA switched off."""
        self.forward, self.with_graph = self.whole, with_graph
        self.backward: Callable[..., Loss] = backward
        if ranks is not None:
            self.whole, self.backward = ranks.forward, ranks.backward
            self.forward = self.whole
        elif model.many_at_once:
            self.forward, self.with_graph = forward_in_threads, graph_in_threads
            self.backward = backward_in_threads
        if algorithm.needs.separate_passes:
            self.forward = partial(forward_apart, forward=self.forward)
            self.backward = partial(backward_apart, backward=self.backward)
        self.replay = Replay(train.replay_updates, train.replay_steps, train.seed) if train.replay_steps else None
        self.skipped, self.skipped_in_a_row = 0, 0
        self.budget = TokenBudget(train.token_budget)
        self.gap: float | None = None
        """Largest difference between the engine's and the trainer's log-probabilities when it was last measured."""

    def learn(self, update: int, trees: Sequence[Tree], used: float = 0.0) -> Learned:
        """One update of the parameters, before which the share ``used`` of the run's budget was used up.

        Raises UserError when nothing but skipped steps came of the last ones.
        """
        with reproducible(self.model.device):
            return self._learn(update, trees, used)

    def _learn(self, update: int, trees: Sequence[Tree], used: float) -> Learned:
        train, started, learned = self.train, monotonic(), Learned()
        pieces = [self.packed(part) for part in cut_evenly(trees, train.minibatches)]
        if update == 1:
            self.calibrate([piece.batch for piece in pieces])
        together = self.algorithm.needs.moments and len(pieces) > 1
        engine, value_only = self.starts_from_engine(), update <= train.value_updates
        keeps = self.ranks is None and not self.algorithm.needs.separate_passes
        if together and keeps and not engine and not value_only:  # nothing changes before its step
            pieces[0].kept = self.with_graph(self.model, pieces[0].batch, self.budget)
        for i, piece in enumerate(pieces):
            # The divergence from the start is shown in any case; now and then, on one minibatch, is enough for that.
            if self.algorithm.needs.reference or (i == 0 and update % KL_EVERY == 1):
                piece.batch = replace(piece.batch, ref_logp_T=self.reference(piece.batch))
            if engine:
                self.adopt(piece)
                piece.unmeasured = i == 0  # the forward of its own step comes before any change
            elif together or i > 0:  # else, again, the forward of the first one's own step is the old one
                kept = assemble(piece.batch, piece.kept).detach() if piece.kept else None
                self.prepare(piece, kept or self.forward(self.model, piece.batch, self.budget))
        if together:
            over = reduce(add, (self.algorithm.moments(piece.batch, piece.credit) for piece in pieces))
            for piece in pieces:
                piece.credit = self.algorithm.scaled(piece.batch, piece.credit, over)
        forwarded = monotonic()
        share = max(0.1, 1 - used)
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * share
        with self.frozen(self.model.policy_parameters() if value_only else []):
            stats, moved_by = self.take_steps(pieces * train.epochs, value_only)
        for piece in pieces:
            learned.credited |= self.credited(piece)
        replayed = self.learn_again(
            update, [Kept(piece.batch, piece.read_SD) for piece in pieces if piece.moved is not None]
        )
        reasons = [(piece, piece.untrained()) for piece in pieces]
        learned.untrained = {name: why for piece, why in reasons if why for name in piece.episode_ids()}
        learned.row = {
            key: mean([s[key] for s in stats if key in s]) for key in dict.fromkeys(k for s in stats for k in s)
        }
        if len(moved_by) > 1:
            learned.row["approx_kl"] = max(moved_by)
        if train.max_kl < math.inf:
            within = sum(why != TOO_FAR for piece in pieces for why in piece.skipped)
            learned.row["left_out_steps"] = float(len(pieces) * train.epochs - within)
        if replayed:
            learned.row["critic_replayed"] = mean(replayed)
        raw = sum(piece.batch.raw_tokens for piece in pieces)
        measured = [piece.mismatch for piece in pieces if piece.mismatch]
        for key in measured[0] if measured else ():
            result = [one[key] for one in measured]
            learned.row[key] = max(result) if key == "mismatch_max_abs" else mean(result)
        self.gap = learned.row.get("mismatch_max_abs")
        if engine and measured:
            learned.row["old_logp_engine"] = 1.0
        learned.row |= {
            "packed_share": sum(len(piece.batch) for piece in pieces) / max(1, raw),
            "seconds_forward": forwarded - started,
            "seconds_update": monotonic() - forwarded,
            "skipped_steps": float(self.skipped),
            "token_budget": float(self.budget.tokens),
            "out_of_memory": float(self.budget.halved),
        }
        return learned

    def take_steps(self, steps: Sequence[Minibatch], value_only: bool) -> tuple[list[dict[str, float]], list[float]]:
        """Steps on these minibatches in turn, until one goes further than ``max_kl``, which is taken back.

        Returns the numbers of every step that was tried, and how far the policy was when each minibatch was read; with
        a bound the first one is read once more after the last step.
        """
        stats: list[dict[str, float]] = []
        moved_by: list[float] = []
        bounded, back = self.train.max_kl < math.inf and not value_only, None

        def too_far() -> bool:
            return back is not None and not moved_by[-1] <= self.train.max_kl

        for piece in steps:
            down = partial(self.backward, kept=piece.kept) if piece.kept else self.backward
            loss = down(self.model, piece.batch, self.loss_of(piece, value_only), self.budget)
            assert piece.moved is not None
            moved_by.append(piece.moved)
            if too_far():
                self.optimizer.zero_grad()
                break
            back = StepBack(self.optimizer) if bounded else None
            norm, stepped = self.step(loss.total)
            stats.append(loss.stats | {"grad_norm": norm})
            piece.skipped.append(None if stepped else NOT_FINITE)
        else:
            if back is not None:
                new = self.forward(self.model, steps[0].batch, self.budget)
                moved_by.append(policy_moved(steps[0].batch, new.logp_T))
        if back is not None and too_far():
            back.take_back()
            steps[len(stats) - 1].skipped[-1] = TOO_FAR
        return stats, moved_by

    def starts_from_engine(self) -> bool:
        """Whether an update's ratios start from the engine's log-probabilities instead of a forward pass of its own."""
        train, needs = self.train, self.algorithm.needs
        if needs.critic or needs.token_critic or train.old_logp == OldLogp.TRAINER:
            return False
        if train.from_played or train.old_logp == OldLogp.ENGINE:
            return True
        plain = train.correction == Correction.NONE and not train.staleness and train.samples_all
        return plain and self.gap is not None and self.gap <= AGREE

    def credit(self, trees: Sequence[Tree]) -> dict[EpisodeId, Credited]:
        """What the episodes of one minibatch would be credited with now; nothing is changed."""
        piece = self.packed(trees)
        if self.algorithm.needs.reference:
            piece.batch = replace(piece.batch, ref_logp_T=self.reference(piece.batch))
        self.prepare(piece, self.forward(self.model, piece.batch, self.budget))
        return self.credited(piece)

    def packed(self, trees: Sequence[Tree]) -> Minibatch:
        return Minibatch(trees, pack([tree.root for tree in trees], self.critic_prompt, self.model.device))

    def calibrate(self, batches: Sequence[Batch]) -> None:
        """Shows the critic the first episodes and their mean return, where it wants to see them."""
        columns = [(b.return_L, b.count_L * (b.return_L.isfinite() & ~b.fault_L)) for b in batches]
        returns = [r for return_L, count_L in columns for r in return_L.repeat_interleave(count_L).tolist()]
        if returns:
            parts = (part.batch for batch in batches for part in cut(batch, self.budget.tokens))
            self.model.calibrate(parts, mean(returns))

    def learn_again(self, update: int, minibatches: Sequence[Kept]) -> list[float]:
        """Steps of the critic alone on episodes of the last updates, these included; its losses before each."""
        if self.replay is None:
            return []
        body = self.train.replay_body and update > self.train.value_updates
        self.replay.keep(update, minibatches)
        losses = []
        with self.frozen([] if body else self.model.policy_parameters()):
            for kept in self.replay.drawn(update):
                batch = kept.batch.to(self.model.device)
                again = partial(self.replayed_loss, batch)
                if kept.read_SD is None:
                    loss = self.backward(self.model, batch, again, self.budget)
                else:
                    loss = again(self.values_only(batch, kept.read_SD.to(self.model.device)))
                    loss.total.backward()
                losses.append(float(loss.total.detach()))
                self.step(loss.total)
        return losses

    @staticmethod
    @contextmanager
    def frozen(parameters: Sequence[nn.Parameter]) -> Iterator[None]:
        """These stay as they are inside."""
        try:
            for parameter in parameters:
                parameter.requires_grad_(False)
            yield
        finally:
            for parameter in parameters:
                parameter.requires_grad_(True)

    def values_only(self, batch: Batch, read_SD: Tensor) -> Forward:
        """A forward of the value head alone."""
        silent_T, state_N = torch.zeros_like(batch.old_logp_T), batch.valued_states
        return Forward(silent_T, silent_T, self.model.values_from(read_SD[state_N], state_N, batch.critic_S.numel()))

    def replayed_loss(self, batch: Batch, new: Forward) -> Loss:
        critic = self.algorithm.critic_only(batch, new)
        assert critic is not None
        return Loss(critic, {})

    def prepare(self, piece: Minibatch, old: Forward) -> None:
        """Notes the log-probabilities to start from, how far the engine's are from the trainer's, and the credit."""
        batch, train = piece.batch, self.train
        numbers = (batch, old.logp_T, batch.old_logp_T)
        piece.mismatch = self.measure(batch, old.logp_T)
        if train.correction != Correction.NONE:
            piece.weight_T = correction_weight(*numbers, train.correction, train.correction_low, train.correction_high)
        if train.masked == Masked.LEFT_OUT:
            batch = without_masked(*numbers, train.correction, train.correction_low, train.correction_high)
        piece.batch = batch if train.from_played else replace(batch, old_logp_T=old.logp_T)
        piece.old = old
        piece.credit = self.algorithm.credit(piece.batch, old)

    def adopt(self, piece: Minibatch) -> None:
        """Takes the engine's log-probabilities as the old ones."""
        logp_T = piece.batch.old_logp_T
        piece.old = Forward(logp_T, torch.zeros_like(logp_T))
        piece.credit = self.algorithm.credit(piece.batch, piece.old)

    def measure(self, batch: Batch, trainer_logp_T: Tensor) -> dict[str, float]:
        """How far the engine's log-probabilities were off."""
        low, high = self.train.correction_low, self.train.correction_high
        return mismatch_stats(batch, trainer_logp_T, batch.old_logp_T, low, high)

    def reference(self, batch: Batch) -> Tensor:
        def off(part: Batch) -> Forward:
            logp_T = self.model.reference(part)
            return Forward(logp_T, torch.zeros_like(logp_T))

        return self.whole(off, batch, self.budget).logp_T

    def loss_of(self, piece: Minibatch, value_only: bool) -> Callable[[Forward], Loss]:
        def loss(new: Forward) -> Loss:
            if piece.old is None:
                self.prepare(piece, new.detach())
            if piece.unmeasured:
                piece.mismatch, piece.unmeasured = self.measure(piece.batch, new.logp_T.detach()), False
            piece.read_SD = None if self.train.replay_body else new.read_SD
            piece.moved = policy_moved(piece.batch, new.logp_T)
            if piece.weight_T is not None:
                new = corrected(new, piece.weight_T)
            result = self.algorithm.loss(piece.batch, new, piece.credit)
            return replace(self.replayed_loss(piece.batch, new), stats=result.stats) if value_only else result

        return loss

    def step(self, loss: Tensor) -> tuple[float, bool]:
        """One optimiser step: (norm of the gradient, whether it was taken). Raises UserError after several in vain."""
        norms = [nn.utils.clip_grad_norm_(group, self.train.max_grad_norm) for group in self.clipped]
        norm = norms[0] if len(norms) == 1 else torch.stack(norms).norm()
        finite = bool(torch.isfinite(norm) and torch.isfinite(loss.detach()))
        if finite:
            self.optimizer.step()
            self.skipped_in_a_row = 0
        else:
            self.skipped += 1
            self.skipped_in_a_row += 1
        self.optimizer.zero_grad()
        if self.skipped_in_a_row >= self.train.max_skipped:
            raise UserError(
                f"loss or gradient was not finite in {self.skipped_in_a_row} steps in a row: lower --lr, check the "
                "rewards in episodes.jsonl, or continue from an earlier checkpoint with --init-from"
            )
        return float(norm), finite

    def credited(self, piece: Minibatch) -> dict[EpisodeId, Credited]:
        """Values and advantages of every episode of a minibatch."""
        assert piece.old is not None
        adv_A = self.algorithm.action_advantage(piece.batch, piece.credit)
        value_S = piece.old.state_values(piece.batch)
        return credited(piece.trees, value_S, adv_A, played=bool(self.algorithm.needs.continuations))

    # -- what a checkpoint keeps ---------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        """Writes the model and the optimiser; ``counters`` are the rest."""
        self.model.save(folder)
        save_file(self.tensors(), folder / OPTIMIZER)

    def load(self, folder: Path, counters: Mapping[str, Any]) -> None:
        """Takes what ``save`` wrote. Raises ModelError."""
        self.model.load(folder)
        self.load_tensors(load_file(folder / OPTIMIZER))
        self.load_counters(counters)

    def tensors(self) -> dict[str, Tensor]:
        """The optimiser's state, ``NUMBER.NAME`` for each parameter in the order of the groups, and replays."""
        state = self.optimizer.state_dict()["state"]
        result = {f"{i}.{name}": x.detach().cpu().clone() for i, one in state.items() for name, x in one.items()}
        return result | (self.replay.tensors() if self.replay else {})

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        state: dict[int, dict[str, Tensor]] = {}
        if self.replay is not None:
            self.replay.load({key: x for key, x in tensors.items() if key.startswith(KEY)})
        for key, tensor in tensors.items():
            i, _, name = key.partition(".")
            if i == KEY:
                continue
            state.setdefault(int(i), {})[name] = tensor
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})

    def counters(self) -> dict[str, Any]:
        budget = {"token_budget": self.budget.tokens, "out_of_memory": self.budget.halved}
        return {"skipped": self.skipped, "skipped_in_a_row": self.skipped_in_a_row, "gap": self.gap} | budget

    def load_counters(self, counters: Mapping[str, Any]) -> None:
        self.skipped, self.skipped_in_a_row = counters["skipped"], counters["skipped_in_a_row"]
        self.gap = counters.get("gap")
        if halved := counters.get("out_of_memory", 0):
            self.budget = TokenBudget(counters["token_budget"], halved)
