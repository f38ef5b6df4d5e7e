"""``python ranks_child.py RANK SIZE KIND MEETING OUT``: a rank that takes gradients of trees of every shape.

Rank 0 writes to OUT how far they are from those of one process.
"""

import json
import os
import sys
from pathlib import Path

import torch
from test_backward import batch_of, coupled, grads_of
from torch import Tensor
from torch import distributed as dist
from tree_cases import actor_critic, relative

from agents.model.actor_critic import ActorCritic
from agents.model.sharded_weights import shard
from agents.tree import Batch, Forward
from agents.tree.ranks import Ranks

CASES = [(family, shape) for family in ("llama", "qwen3") for shape in ("chain", "group", "forks", "bushy", "several")]


class Small(ActorCritic):
    """Memory for passes of ``most`` tokens only, on one rank."""

    most = 10_000

    def forward(self, batch: Batch) -> Forward:
        if len(batch) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().forward(batch)


def gradient(ranks: Ranks, model: ActorCritic, batch: Batch, budget: int) -> tuple[Tensor, list[Tensor]]:
    model.zero_grad()
    loss = ranks.backward(model, batch, coupled(batch), budget)
    return loss.total.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]


def main(rank: int, size: int, kind: str, meeting: str, out: Path) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo" if sys.platform == "linux" else "lo0"
    store = dist.FileStore(meeting, size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    ranks, cases = Ranks(lockstep=kind == "fsdp"), []
    for family, shape in CASES:
        batch, model = batch_of(shape), actor_critic(family)
        longest = int(batch.pos_T.max()) + 1
        loss, grads = grads_of(model, batch, 10_000)
        frozen = sum(p.numel() for p in model.parameters() if not p.requires_grad)
        if ranks.lockstep:
            shard(model)
        held = sum(getattr(p, "_local_tensor", p).numel() for p in model.parameters() if not p.requires_grad)
        case = {"family": family, "shape": shape, "held": held / frozen}
        for name, budget in (("one pass", 10_000), ("several passes", longest)):
            ours, mine = gradient(ranks, model, batch, budget)
            assert ranks.agree(int(sum(g.double().abs().sum() for g in mine) * 1e12)), "the ranks differ"
            case[name] = [float((ours - loss).abs()), relative(mine, grads)]
        if not ranks.lockstep:
            model.__class__ = Small
            model.most = longest if rank else 10_000
            case["one short of memory"] = [0.0, relative(gradient(ranks, model, batch, 10_000)[1], grads)]
        cases.append(case)
    if rank == 0:
        out.write_text(json.dumps(cases))
    dist.destroy_process_group()


if __name__ == "__main__":
    rank, size, kind, meeting, out = sys.argv[1:]
    main(int(rank), int(size), kind, meeting, Path(out))
