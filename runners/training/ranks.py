"""A learner in several processes of this machine: this one, which is rank 0, and those that it starts.

Invariant: every rank learns from the same episodes, with the same settings, from the same state on; only the passes are
shared (`agents.tree.ranks`). So all end with the same parameters, which is checked after every update. A rank that is
lost ends the run; its last checkpoint is whole.

Nothing listens beyond loopback. The ranks meet at a file of the run folder; episodes go over private sockets.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist

from agent_envs.isolation.child import Child
from agents.model.actor_critic import ActorCritic
from agents.model.sharded_weights import shard
from agents.tree.merge import Tree
from agents.tree.ranks import Ranks
from algorithms.base import Algorithm
from runners.command_line.errors import UserError
from runners.loading.base_model import BaseSpec, device_of
from runners.settings.learner_ranks import FSDP, LearnerRanks
from runners.settings.run_settings import RunSettings
from runners.settings.train_settings import Train
from runners.training.learner import Learned, Learner

SERVE = "runners.training.serve_rank"
MEETING = "learner-ranks"
"""File of the run folder at which the ranks meet; it is there while they run."""
PATIENCE = timedelta(minutes=30)
"""A rank that does not answer for so long is lost. One that ended is noticed at once."""


@dataclass(frozen=True)
class RankSetup:
    """What another rank is made from; it is pickled."""

    settings: RunSettings
    base: BaseSpec
    folder: Path
    """The run folder."""
    checkpoint: Path | None
    """The one that the run is resumed from."""
    rank: int

    def join(self) -> Ranks:
        """Meets the other ranks."""
        return join(self.settings.train.ranks, self.rank, self.folder / MEETING, device_of(self.base.device))


def join(ranks: LearnerRanks, rank: int, meeting: Path, device: torch.device) -> Ranks:
    """Makes this process one of torch's process group."""
    loopback = "lo" if sys.platform == "linux" else "lo0"
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ.setdefault(name, loopback)
    backend = "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl"
    store = dist.FileStore(str(meeting), ranks.size)  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks.size, timeout=PATIENCE)
    return Ranks(lockstep=ranks.kind == FSDP)


def place(device: str, rank: int) -> str:
    """The device of a rank: on a machine with GPUs, one each. Raises UserError where there are too few."""
    found = device_of(device)
    if found.type != "cuda":
        return device
    index = (found.index or 0) + rank
    if index >= torch.cuda.device_count():
        raise UserError(
            f"--learner wants a GPU for each rank, and this machine has {torch.cuda.device_count()}: name fewer"
        )
    return f"cuda:{index}"


def fingerprint(model: ActorCritic) -> int:
    """A hash of all that is trained, of 62 bits."""
    result = hashlib.sha256()
    for parameter in (*model.policy_parameters(), *model.value_parameters()):
        result.update(parameter.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return int.from_bytes(result.digest()[:8], "big") >> 2


class RankedLearner(Learner):
    """The learner of rank 0, which tells the others what it is about to learn from."""

    def __init__(
        self,
        model: ActorCritic,
        algorithm: Algorithm[Any],
        critic_prompt: Sequence[int] | None,
        train: Train,
        setup: RankSetup,
    ) -> None:
        self._children: list[Child] = []
        self._folder = setup.folder
        try:
            with self._lost():
                super().__init__(model, algorithm, critic_prompt, train, self._meet(setup))
                if train.ranks.kind == FSDP:
                    shard(model)
                for child in self._children:
                    kind, text = pickle.loads(child.recv_bytes())
                    if kind == "refused":
                        raise UserError(f"a rank of the learner could not begin: {text}")
        except BaseException:
            self.close()
            raise

    def learn(self, update: int, trees: Sequence[Tree], used: float = 0.0) -> Learned:
        episodes = [episode for tree in trees for episode, _ in tree.paths]
        message = pickle.dumps((update, episodes, used))
        assert self.ranks is not None
        with self._lost():
            for child in self._children:
                child.send_bytes(message, PATIENCE.total_seconds())
            learned = super().learn(update, trees, used)
            same = self.ranks.agree(fingerprint(self.model))
        if not same:
            raise UserError(
                f"the ranks of the learner ended update {update} with different parameters: continue from the last "
                f"checkpoint with --resume {self._folder}, on one kind of processor"
            )
        return learned

    def close(self) -> None:
        """Ends the other ranks. Safe to call twice."""
        for child in self._children:
            child.kill()
        self._children = []
        if dist.is_initialized():
            dist.destroy_process_group()
        with suppress(OSError):
            (self._folder / MEETING).unlink(missing_ok=True)

    def _meet(self, setup: RankSetup) -> Ranks:
        size = setup.settings.train.ranks.size
        (setup.folder / MEETING).unlink(missing_ok=True)  # of a run that was killed
        places = [place(setup.base.device, rank) for rank in range(size)]
        for rank in range(1, size):
            child = Child(SERVE)
            self._children.append(child)
            its = replace(setup, rank=rank, base=replace(setup.base, device=places[rank]))
            child.send_bytes(pickle.dumps(its), PATIENCE.total_seconds())
        for child in self._children:
            child.recv_bytes()  # it is about to join: from here on nobody waits for a rank that never comes
        return setup.join()

    @contextmanager
    def _lost(self) -> Iterator[None]:
        """Raises UserError, which says which rank was lost, where one was."""
        try:
            yield
        except (RuntimeError, EOFError, TimeoutError) as error:
            # The connection breaks a moment before its process has ended.
            ended = {rank: child.ending(2.0) for rank, child in enumerate(self._children, 1)}
            gone = [rank for rank, how in ended.items() if how != "still running"]
            if not gone and not isinstance(error, dist.DistError | EOFError | TimeoutError):
                raise
            rank = gone[0] if gone else 1
            said = self._children[rank - 1].tail().strip().splitlines()
            last = f"; last it said: {said[-1]}" if said else ""
            raise UserError(
                f"rank {rank} of the learner was lost ({ended[rank]}{last}): continue with --resume {self._folder}"
            ) from None
