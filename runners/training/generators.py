"""The process's own random generators, which a checkpoint keeps. Nothing here draws from them; a plug-in may."""

import random
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor


def seed_all(seed: int) -> None:
    """Python's, numpy's and torch's, on every device."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def rng_state() -> dict[str, Tensor]:
    """The state of each generator, by its library or device."""
    _, words, gauss = random.getstate()
    numpy = np.random.get_state(legacy=False)
    assert isinstance(numpy, dict) and numpy["bit_generator"] == "MT19937"
    result = {
        "cpu": torch.get_rng_state(),
        "python": torch.tensor(words),
        "python_gauss": torch.tensor([] if gauss is None else [gauss], dtype=torch.float64),
        "numpy": torch.from_numpy(numpy["state"]["key"].astype(np.int64)),
        "numpy_at": torch.tensor([numpy["state"]["pos"], numpy["has_gauss"]]),
        "numpy_gauss": torch.tensor([numpy["gauss"]], dtype=torch.float64),
    }
    if torch.cuda.is_available():
        result |= {f"cuda:{i}": state for i, state in enumerate(torch.cuda.get_rng_state_all())}
    return result


def load_rng_state(states: Mapping[str, Tensor]) -> None:
    """The other direction. What a checkpoint of an earlier version does not hold stays as it is."""
    torch.set_rng_state(states["cpu"])
    if "python" in states:
        gauss = states["python_gauss"].tolist()
        random.setstate((3, tuple(states["python"].tolist()), gauss[0] if gauss else None))
        at, has_gauss = states["numpy_at"].tolist()
        keys = states["numpy"].numpy().astype(np.uint32)
        np.random.set_state(("MT19937", keys, at, has_gauss, states["numpy_gauss"].item()))
    for name, state in states.items():
        if name.startswith("cuda:") and int(name.removeprefix("cuda:")) < torch.cuda.device_count():
            torch.cuda.set_rng_state(state, name)
