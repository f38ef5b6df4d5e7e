"""What the C library does with memory that is freed."""

import ctypes

LARGE = 50_000_000
"""Parameters from which on a model's activations are worth giving back."""
_MMAP_THRESHOLD, _BLOCK = -3, 1 << 20


def give_back() -> None:
    """Freed blocks of a MiB or more go back to the system at once.

    By default glibc keeps blocks below 32 MiB in a heap that does not shrink: a training pass on a CPU then held 2.3
    times the memory of its tensors, and gradient checkpointing saved little. Page faults cost time instead.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _BLOCK)
