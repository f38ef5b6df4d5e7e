"""Two simulated nodes of a Ray cluster on this machine, for as long as its input is open.

    python ray_nodes.py FOLDER

Prints the address. For a line "kill" it kills the first node that holds a worker, all its processes at once, and says
how many did; for "add" there is another node.
"""

import os
import sys
from pathlib import Path

from ray.cluster_utils import Cluster

MARK = b"runners.workers.serve"


def workers_of(raylet: int) -> int:
    """Rollout workers below a raylet."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            parents[int(entry.name)] = (parent, MARK in (entry / "cmdline").read_bytes())
        except (OSError, IndexError):
            continue
    found = 0
    for pid, (_, marked) in parents.items():
        above = pid
        while marked and above in parents and above != raylet:
            above = parents[above][0]
        found += marked and above == raylet
    return found


def main(folder: str) -> None:
    os.environ["RAY_TMPDIR"] = folder
    (Path(folder) / "ray").mkdir()
    cluster = Cluster(head_node_args={"num_cpus": 0, "include_dashboard": False}, initialize_head=True)
    nodes = [cluster.add_node(num_cpus=2) for _ in range(2)]
    print(cluster.address, flush=True)
    for asked in sys.stdin:
        if asked.strip() == "add":
            nodes.append(cluster.add_node(num_cpus=2))
            print("added", flush=True)
            continue
        busy = [n for n in nodes if n in cluster.worker_nodes and workers_of(n.all_processes["raylet"][0].process.pid)]
        print(len(busy), flush=True)
        if busy:
            cluster.remove_node(busy[0], allow_graceful=False)
    cluster.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
