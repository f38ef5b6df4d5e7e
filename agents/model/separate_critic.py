"""A policy, and beside it a critic with trained parameters of its own, on one frozen base.

Invariant: the two share the base's weight tensors, which nothing trains, and nothing else: no gradient of the critic
reaches the policy, and the policy's log-probabilities are the bits that they are without a critic. The critic's value
of a token is read where the model has just read that token.

Legend: T tokens, D width.
"""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from agents.model import adapter_io
from agents.model.actor_critic import ActorCritic
from agents.model.settings import Attention, LoraSettings, SeparateCriticSettings
from agents.model.value_head import calibrate, value_head, wide
from agents.tree import Batch, Forward

FILE = "critic.safetensors"
"""What a checkpoint keeps of the critic, beside the policy's adapter."""


class SeparateActorCritic(ActorCritic):
    """An actor whose ``Forward.value_T`` comes from a second LoRA adapter and a value head; a second pass over the row.

    Arguments are those of ``ActorCritic``; the critic adapts the same modules as ``lora`` does. It is no part of
    ``adapter_state``, which is what engines and evaluations take. Raises ModelError like ``ActorCritic``.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        lora: LoraSettings,
        critic: SeparateCriticSettings,
        *,
        temperature: float = 1.0,
        chunk: int | None = None,
        seed: int = 0,
        checkpointing: bool = False,
        attention: Attention = Attention.AUTO,
    ) -> None:
        # New modules around the same weights, made before LoRA is put between those of the policy.
        twin: PreTrainedModel = copy.deepcopy(model, {id(p): p for p in model.parameters()})
        shared: dict[str, Any] = {"checkpointing": checkpointing, "attention": attention}
        super().__init__(model, lora, None, temperature=temperature, chunk=chunk, seed=seed, **shared)
        self.separate = critic
        own = replace(lora, rank=critic.rank, alpha=critic.alpha)
        self.critic_body = ActorCritic(twin, own, None, seed=seed + 1, **shared)
        with torch.random.fork_rng([model.device] if model.device.type == "cuda" else []):
            torch.manual_seed(seed + 1)
            self.critic_body.value_head = value_head(model, critic)

    @property
    def critic_head(self) -> nn.Sequential:
        assert self.critic_body.value_head is not None
        return self.critic_body.value_head

    def value_parameters(self) -> list[nn.Parameter]:
        """All that the critic trains: its LoRA matrices and its value head."""
        return [*self.critic_body.policy_parameters(), *self.critic_body.value_parameters()]

    @torch.no_grad()
    def calibrate(self, batches: Iterable[Batch], mean_return: float) -> None:
        if self.separate.waits:
            before = ((batch, batch.parent_T[batch.action_T >= 0]) for batch in batches)
            read = torch.cat([self.critic_body.hidden(batch)[row_N] for batch, row_N in before])
            calibrate(self.critic_head, self.separate, wide(read), mean_return)

    def summary(self) -> str:
        policy, value = (sum(p.numel() for p in x) for x in (self.policy_parameters(), self.value_parameters()))
        share = 100 * (policy + value) / self.base_size
        return f"trained: {policy:,} LoRA + {value:,} separate critic = {share:.1f} % of {self.base_size:,} parameters"

    def forward(self, batch: Batch) -> Forward:
        """As ``ActorCritic.forward``, with ``value_T`` of every row."""
        return replace(super().forward(batch), value_T=self.values(batch))

    def values(self, batch: Batch) -> Tensor:
        """value_T: the critic's own pass."""
        known = self._plan  # read once: another thread may set it now
        plan = known[1] if known is not None and known[0] is batch.end_T else None
        hidden_TD = self.critic_body.hidden(batch, plan)
        return self.critic_head(wide(hidden_TD)).squeeze(1)

    # -- saving -----------------------------------------------------------------------------------------------------

    def critic_state(self) -> dict[str, Tensor]:
        """All that training changes of the critic, by name, detached."""
        return self.critic_body.adapter_state()

    def load_critic_state(self, state: Mapping[str, Tensor]) -> None:
        """Copies what ``critic_state`` gave. Raises ModelError when names or shapes differ."""
        self.critic_body.load_state(state)

    def save(self, folder: str | Path) -> None:
        """The policy as ``ActorCritic`` saves it, and the critic in a file beside it."""
        super().save(folder)
        adapter_io.write(self.critic_state(), Path(folder) / FILE)

    def load(self, folder: str | Path) -> None:
        """Takes what ``save`` wrote, all of it or nothing. Raises ModelError."""
        critic = adapter_io.read(Path(folder) / FILE)
        adapter_io.compare(self.critic_state(), critic)
        super().load(folder)
        self.load_critic_state(critic)
