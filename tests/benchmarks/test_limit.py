"""The share of the processor's speed: what counts as work, and that the conditions can fail."""

import random

import pytest
from torch.utils.flop_counter import FlopCounterMode

from agents.tree.packing import pack
from benchmarks import limit, variants
from benchmarks.limit import Share
from benchmarks.timing import Spread


@pytest.mark.usefixtures("by_mkl")  # whose products torch counts
@pytest.mark.parametrize("turns", [2, 5])
def test_the_work_is_what_is_multiplied(turns: int) -> None:
    model = variants.actor_critic("0.5M")
    batch = pack([variants.episode(turns, random.Random(0))], variants.CRITIC_PROMPT)
    with FlopCounterMode(display=False) as counter:
        variants.step(variants.packed, model, batch)
    counted = {str(name): count for name, count in counter.get_flop_counts()["Global"].items()}
    done = sum(count for name, count in counted.items() if name in ("aten.mm", "aten.addmm"))
    work = limit.operations(model, batch)
    assert work <= done * 1.001, "nothing counts that is not multiplied"
    assert work >= done * 0.97, "of what is multiplied, only the sums of weights do not count"


def test_conditions_can_fail() -> None:
    def share(size: str, reached: float) -> Share:
        one = Spread.of([reached])
        return Share(size, 1, 1.0, one, one, one)

    reached = [share("0.5M", 0.36), share("2M", 0.01), share("90M", 0.69)]
    assert [holds for _, holds in limit.conditions(reached)] == [True, False], "2M has no condition"
