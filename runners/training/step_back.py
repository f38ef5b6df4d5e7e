"""What an optimiser's step changes, kept so that the step can be taken back."""

from copy import deepcopy

import torch
from torch.optim import Optimizer


class StepBack:
    """The parameters and the optimiser's state as they are now: one copy of all that is trained, and two of moments."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer, self.state = optimizer, deepcopy(optimizer.state_dict())
        self.values = [(p, p.detach().clone()) for group in optimizer.param_groups for p in group["params"]]

    @torch.no_grad()
    def take_back(self) -> None:
        """Makes everything what it was."""
        for parameter, value in self.values:
            parameter.copy_(value)
        self.optimizer.load_state_dict(self.state)
