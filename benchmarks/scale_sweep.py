"""What `scale_sim` simulates: 1 to 1,000 workers, in two ways to scale, with and without staleness and cuts.

Invariant: the episodes of a batch depend on the seed, the tail and the number of the batch, and on nothing else. So two
cells that differ in another setting meet the same episodes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from benchmarks.scale_events import Costs, Setup, Turns, simulate
from benchmarks.timed_envs import sigma

WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
CODING, HEAVY, WAITS = "coding", "coding, heavy tail", "waiting"
"""What the turns and the constants come from: the coding environment, the same with other times of its turns, and the
waiting environment, whose tail is as heavy."""
RATIO = 50.0
"""99th percentile of a turn over its median in the heavy tail."""
PORTION, BATCH = 8, 1024
"""Episodes that a worker plays at once, and those of an update where they do not grow with the workers."""
WEAK, STRONG = "8 episodes a worker", "1,024 episodes"
LEAST_EPISODES = 4096
"""Episodes of a cell at least, and updates: a few draws decide little then."""
LEAST_UPDATES, WARM = 24, 4


@dataclass(frozen=True)
class Pool:
    """Recorded episodes, from which batches are drawn."""

    episodes: Sequence[Turns]
    tail: str
    seed: int = 0

    @cached_property
    def mean(self) -> float:
        """Mean of a turn in seconds."""
        return float(np.mean([seconds for turns in self.episodes for seconds in turns]))

    def turns_of(self, batch: int, wanted: int) -> list[Turns]:
        """The turns of a batch's episodes; in a heavy tail an episode keeps how many it has, and its times are drawn
        from a lognormal with the recorded mean."""
        rng = np.random.default_rng([self.seed, batch])
        chosen = [self.episodes[i] for i in rng.integers(len(self.episodes), size=wanted)]
        if self.tail != HEAVY:
            return chosen
        ends = np.cumsum([len(turns) for turns in chosen])
        spread = sigma(RATIO)
        drawn = rng.lognormal(np.log(self.mean) - spread**2 / 2, spread, int(ends[-1]) if wanted else 0).tolist()
        return [drawn[end - len(turns) : end] for end, turns in zip(ends, chosen, strict=True)]


@dataclass(frozen=True)
class Cell:
    """One simulated run."""

    scaling: str
    tail: str
    setup: Setup


def cells(workers: Sequence[int] = WORKERS) -> Iterator[Cell]:
    """All of them, the smallest first."""
    for n in workers:
        for scaling, episodes in ((WEAK, PORTION * n), (STRONG, BATCH)):
            updates = WARM + max(LEAST_UPDATES, -(-LEAST_EPISODES // episodes))
            plain = Setup(n, episodes, PORTION, updates=updates, warm=WARM)
            cut = [replace(plain, extra=0.25, carry=carry) for carry in (False, True)]
            for tail in (CODING, HEAVY, WAITS):
                for setup in (plain, *(replace(plain, staleness=s) for s in (1, 2)), *cut):
                    yield Cell(scaling, tail, setup)


def row_of(cell: Cell, costs: Costs, episodes: Sequence[Turns], seed: int) -> Mapping[str, Any]:
    """A cell with what it does, for the result file."""
    found = asdict(simulate(cell.setup, costs, Pool(episodes, cell.tail, seed).turns_of))
    return {"scaling": cell.scaling, "tail": cell.tail, **asdict(cell.setup), **_rounded(found)}


def _rounded(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Four significant digits are more than the model has."""
    return {
        name: _rounded(value) if isinstance(value, dict) else float(f"{value:.4g}") for name, value in found.items()
    }
