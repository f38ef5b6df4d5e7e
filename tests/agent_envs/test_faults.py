"""A fault of an environment, wherever it is caught."""

import copy
import pickle
from collections.abc import Callable

import pytest

from agent_envs.isolation.faults import EnvFault, FaultKind, Stage


@pytest.mark.parametrize("way", [copy.copy, lambda fault: pickle.loads(pickle.dumps(fault))])
def test_a_fault_survives_the_way_to_another_process(way: Callable[[EnvFault], EnvFault]) -> None:
    fault = EnvFault(FaultKind.HUNG, Stage.STEP, "no answer within 3 s")
    there = way(fault)
    assert type(there) is EnvFault and str(there) == str(fault) == "step: hung: no answer within 3 s"
    assert (there.kind, there.stage, there.message) == (FaultKind.HUNG, Stage.STEP, "no answer within 3 s")


def test_an_exception_that_keeps_its_text_alone_does_not() -> None:
    class LossyError(Exception):
        def __init__(self, one: str, other: str) -> None:
            super().__init__(f"{one} {other}")

    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        copy.copy(LossyError("a", "b"))
