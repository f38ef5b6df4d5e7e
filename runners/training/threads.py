"""In how many threads a learner's process computes."""

import torch

from agents.compiled.threads import allow
from runners.settings.train_settings import Train


def compute_in_threads(train: Train) -> None:
    """PyTorch, and what is compiled in C, as the settings say."""
    torch.set_num_threads(train.threads)
    allow(train.compiled_threads)
