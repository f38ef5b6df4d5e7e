"""torch's random generators as tensors, which a checkpoint keeps. Nothing here draws from them; a plug-in may."""

from collections.abc import Mapping

import torch
from torch import Tensor


def rng_state() -> dict[str, Tensor]:
    """The state of each device's generator, by device."""
    result = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        result |= {f"cuda:{i}": state for i, state in enumerate(torch.cuda.get_rng_state_all())}
    return result


def load_rng_state(states: Mapping[str, Tensor]) -> None:
    torch.set_rng_state(states["cpu"])
    for name, state in states.items():
        if name != "cpu" and int(name.removeprefix("cuda:")) < torch.cuda.device_count():
            torch.cuda.set_rng_state(state, name)
