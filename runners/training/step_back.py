"""What an optimiser's step changes, kept so that the step can be taken back."""

import torch
from torch.optim import Optimizer


class StepBack:
    """The parameters and the optimiser's state as they are now: one copy of all that is trained, and two of moments."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.kept = [
            (p, p.detach().clone(), {name: x.clone() for name, x in optimizer.state.get(p, {}).items()})
            for group in optimizer.param_groups
            for p in group["params"]
        ]

    @torch.no_grad()
    def take_back(self) -> None:
        """Makes everything what it was. Once only: what was kept is in use then."""
        for parameter, value, state in self.kept:
            parameter.copy_(value)
            self.optimizer.state.pop(parameter, None)
            if state:
                self.optimizer.state[parameter] = state
