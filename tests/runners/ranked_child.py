"""``python ranked_child.py RANK SIZE KIND FOLDER``: a rank that takes the gradient of every algorithm's first update.

Rank 0 writes to FOLDER/found.json how far it is from that of one process.
"""

import json
import os
import sys
from pathlib import Path

from learning_cases import JUDGED
from run_cases import gradient, jobs, training
from torch import distributed as dist

from agents.engine import SamplingSettings
from agents.model.sharded_weights import shard
from agents.tree.merge import grow
from algorithms import REGISTRY
from runners.settings.learner_ranks import LearnerRanks
from runners.training.learner import Learner
from runners.training.ranks import join

MORE = {"grpo": ("--grpo.kl-coef", "0.1"), "selfac": ("--replay-steps", "2", "--replay-body")}


def main(rank: int, size: int, kind: str, folder: Path) -> None:
    ranks, found = None, {}
    for algo in REGISTRY.names():
        argv = (
            "--episodes",
            "64",
            "--pretrain.flaw",
            "0.2",
            "--algo",
            algo,
            *JUDGED.get(algo, ()),
            *MORE.get(algo, ()),
        )
        with training(folder / f"{algo}-{rank}", *argv) as run:
            run.controller.load(0, run.model.policy_state())
            episodes = run.controller.play(jobs(run), SamplingSettings()).episodes
            if run.judging:
                run.judging.label(episodes)
            trees, alone = grow(episodes), run.learner
            if run.algorithm.needs.continuations:
                run.continued(trees)
            if ranks is None:
                ranks = join(LearnerRanks(kind, size), rank, folder / "meeting", run.model.device)
            shared = Learner(run.model, run.algorithm, alone.critic_prompt, run.train, ranks)
            whole = gradient(alone, trees)
            if ranks.lockstep:
                shard(run.model)
            ours = gradient(shared, trees)
            largest = max(float(g.abs().max()) for g in whole)
            assert len(ours) == len(whole)
            found[algo] = max(float((a - b).abs().max()) for a, b in zip(ours, whole, strict=True)) / largest
    if rank == 0:
        (folder / "found.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ["TURNWISE_CACHE"] = str(Path(sys.argv[4]) / f"cache-{sys.argv[1]}")
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
