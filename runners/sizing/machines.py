"""The memory of GPUs by name, and of this machine. Imports no torch."""

import os
import re
from dataclasses import dataclass

from runners.command_line.errors import UserError

MIB = {
    "T4 16GB": 15_360,
    "L4 24GB": 23_034,
    "A10 24GB": 23_028,
    "RTX 3090 24GB": 24_576,
    "RTX 4090 24GB": 24_564,
    "RTX 5090 32GB": 32_607,
    "A100 40GB": 40_960,
    "L40S 48GB": 46_068,
    "RTX A6000 48GB": 49_140,
    "A100 80GB": 81_920,
    "H100 80GB": 81_559,
    "H200 141GB": 143_771,
    "B200 180GB": 183_359,
}
"""What nvidia-smi reports as a card's memory."""


@dataclass(frozen=True)
class Machine:
    """Where a run would be."""

    name: str
    bytes: int
    gpu: bool


def this_machine() -> Machine:
    """Its main memory."""
    return Machine("this machine", os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), gpu=False)


def gpu_of(name: str) -> Machine:
    """A GPU by its name or its gigabytes. Raises UserError for a name that is unknown or of several cards."""
    if number := re.fullmatch(r"(\d{1,4})\s*(gb|gib)?", name.strip().lower()):
        return Machine(f"a GPU of {number[1]} GB", int(number[1]) * 10**9, gpu=True)
    words = re.findall(r"[a-z]+\d*[a-z]*|\d+gb|\d+", name.lower().replace(" gb", "gb"))
    fits = [card for card in MIB if words and all(word in card.lower().split() for word in words)]
    if len(fits) != 1:
        raise UserError(f"--gpu {name!r} is {'not known' if not fits else 'more than one card'}: give one of "
                        f"{', '.join(fits or MIB)}, or its memory, as 24GB")  # fmt: skip
    return Machine(fits[0], MIB[fits[0]] * 2**20, gpu=True)
