"""One shared model as actor and critic: a causal language model with LoRA and a small value head.

Invariant: one forward over a row of trees gives every action's log-probability and every state's value, equal to
separate forwards of every path. At the start LoRA adds exactly nothing and every value is exactly 0.

Legend: T tokens, A actions, S states, N action tokens or critic rows picked from T, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from threading import Lock

import torch
from peft import PeftModel
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from agents.compiled import layers
from agents.model import supported
from agents.model.adapter_io import Adapted
from agents.model.attention.backends import choose, plan_of
from agents.model.attention.interface import NAME, RowPlan, marker_mask
from agents.model.lean_layers import make_lean
from agents.model.lora import AUTO, with_lora
from agents.model.settings import Attention, CriticSettings, LoraSettings
from agents.model.token_scores import token_scores
from agents.model.value_head import calibrate, value_head, wide
from agents.text.errors import ModelError
from agents.tree import Batch, Forward

__all__ = ["ActorCritic", "Counters", "CriticSettings", "LoraSettings", "ModelError"]

LORA, SMALL_HEAD = LoraSettings(), CriticSettings()
MOST_ROWS, MOST_LOGITS = 4096, 2**26
"""Of logits that are in memory at once: rows, and numbers (a quarter of a gigabyte)."""


MOVING = ("dynamic", "longrope")
"""Rotary positions of transformers that depend on how long the row is."""
_COUNTING = Lock()


@dataclass
class Counters:
    """What was encoded since the start; claims about cost are tested with it."""

    passes: int = 0
    tokens: int = 0
    _prompts: Tensor | int = 0

    def add(self, batch: Batch) -> None:
        """One pass over the row. What is only known on the device stays there: nothing waits for it."""
        length_S = batch.pos_T[batch.critic_S] - batch.pos_T[batch.last_S]
        prompts = torch.where(batch.critic_S >= 0, length_S, 0).sum()
        with _COUNTING:
            self.passes += 1
            self.tokens += len(batch)
            self._prompts = self._prompts + prompts

    @property
    def critic_tokens(self) -> int:
        """Tokens of critic prompts."""
        return int(self._prompts)


class ActorCritic(Adapted):
    """Policy and value function in one; ``lora=None`` trains every parameter (pretraining).

    ``temperature`` divides the logits and must be that of the rollout. ``chunk`` bounds the rows of logits that are in
    memory at once; None takes as many as ``MOST_ROWS`` and ``MOST_LOGITS`` allow. ``attention`` is how attention is
    computed; ``how`` says why it became what it is. ``seed`` starts LoRA and the value head; the global generator is
    left as it was. ``checkpointing`` keeps only the inputs of every layer for the backward pass, which computes the
    layer again.
    Raises ModelError when the model cannot read token trees exactly.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        lora: LoraSettings | None = LORA,
        critic: CriticSettings | None = SMALL_HEAD,
        *,
        temperature: float = 1.0,
        chunk: int | None = None,
        seed: int = 0,
        checkpointing: bool = False,
        attention: Attention = Attention.AUTO,
    ) -> None:
        super().__init__()
        if chunk is None:
            chunk = rows_of_logits(model.get_input_embeddings().num_embeddings)
        if temperature <= 0 or chunk < 1:
            raise ModelError(f"temperature {temperature} and chunk {chunk} must be positive")
        supported.check_config(model)
        supported.dispatch(model)
        self.lora, self.critic = lora, critic
        self.temperature, self.chunk = temperature, chunk
        self.counters = Counters()
        self._plan: tuple[Tensor, RowPlan] | None = None
        self.base_size = model.num_parameters()
        """Parameters of the model before anything was added."""
        with torch.random.fork_rng([model.device] if model.device.type == "cuda" else []):
            torch.manual_seed(seed)
            self.model = model if lora is None else with_lora(model, lora)
            self.value_head = None if critic is None else value_head(model, critic)
        if lora is None:
            self.model.requires_grad_(True)
        self.choose(attention, model)
        self._layers = _checkpointed(self.causal_model) if checkpointing else []
        self.train()
        supported.probe(self.causal_model, lambda batch, plan: self.logits(self.hidden(batch, plan)), self.plan_of)
        self.counters = Counters()

    # -- the model's parts ------------------------------------------------------------------------------------------

    @property
    def causal_model(self) -> PreTrainedModel:
        """The Hugging Face model, with LoRA inside its layers where there is LoRA."""
        return self.model.get_base_model() if isinstance(self.model, PeftModel) else self.model

    @property
    def device(self) -> torch.device:
        """Where the batch must be."""
        return self.causal_model.device

    def choose(self, attention: Attention, model: PreTrainedModel) -> None:
        """How ``model`` computes from now on, where it now is. Raises ModelError for attention that cannot be so."""
        self.attention, self.how = choose(attention, model)
        self.compiled = self.attention == Attention.COMPILED and not layers.missing()
        make_lean(model, compiled=self.compiled)

    @property
    def many_at_once(self) -> bool:
        """Whether several threads may call it at once: on a CPU, by what is compiled before the first call, and without
        anything that a pass changes for the next one: rotary positions, or what quantised layers note."""
        moving = any(kind in str(getattr(m, "rope_type", "")) for m in self.modules() for kind in MOVING)
        whole = all(p.is_floating_point() for p in self.parameters())
        return self.attention == Attention.COMPILED and whole and not moving

    def policy_parameters(self) -> list[nn.Parameter]:
        """What is trained of the policy: the LoRA matrices, or everything when there is no LoRA."""
        return [p for p in self.model.parameters() if p.requires_grad]

    def value_parameters(self) -> list[nn.Parameter]:
        """The parameters of the value head."""
        return [] if self.value_head is None else list(self.value_head.parameters())

    @torch.no_grad()
    def calibrate(self, batches: Iterable[Batch], mean_return: float) -> None:
        """Shows the critic the first episodes, before the first update, where its settings ask for that."""
        if self.critic is not None and self.value_head is not None and self.critic.waits:
            read = torch.cat([batch.at_prompts(self.hidden(batch))[0] for batch in batches])
            calibrate(self.value_head, self.critic, wide(read), mean_return)

    def remove_value_head(self) -> None:
        """Leaves a plain policy: log-probabilities and greedy output stay bit-identical."""
        self.value_head = None

    def train(self, mode: bool = True) -> ActorCritic:
        """Keeps the language model in evaluation mode: dropout while learning would make every ratio inexact."""
        super().train(mode)
        self.model.eval()
        for layer in self._layers:  # a layer is checkpointed only while it trains; its parts, dropout too, do not
            layer.training = mode
        return self

    def summary(self) -> str:
        """Trained parameters and their share, in one line."""
        policy = sum(p.numel() for p in self.policy_parameters())
        value = sum(p.numel() for p in self.value_parameters())
        name = "model" if self.lora is None else "LoRA"
        if isinstance(self.model, PeftModel) and self.lora is not None and self.lora.targets == AUTO:
            chosen = self.model.peft_config["default"].target_modules
            few = sorted(chosen) if len(chosen) <= 12 else [f"{len(chosen)} layers"]
            name = f"LoRA (auto: {', '.join(few)})"
        share = 100 * (policy + value) / self.base_size
        return f"trained: {policy:,} {name} + {value:,} value head = {share:.1f} % of {self.base_size:,} parameters"

    # -- forward ----------------------------------------------------------------------------------------------------

    def forward(self, batch: Batch) -> Forward:
        """One differentiable pass over the whole row.

        ``logp_T`` is read at row ``parent_T``, at action tokens only (0 elsewhere); ``entropy_T`` carries no gradient;
        ``value_S`` is 0 where a state has no critic prompt and None when the batch has none at all.
        """
        return self.read(self.hidden(batch), batch)

    def read(self, hidden_TD: Tensor, batch: Batch) -> Forward:
        """What ``forward`` returns, from the last hidden states [T, D] of the row."""
        row_N = batch.action_rows
        logp_N, entropy_N = self._score(hidden_TD.index_select(0, batch.parent_T[row_N]), batch.token_T[row_N])
        zero_T = logp_N.new_zeros(len(batch))
        value_S, read_SD = self._values(hidden_TD, batch)
        return Forward(
            logp_T=zero_T.index_copy(0, row_N, logp_N),
            entropy_T=zero_T.index_copy(0, row_N, entropy_N),
            value_S=value_S,
            read_SD=read_SD,
        )

    @torch.no_grad()
    def reference(self, batch: Batch) -> Tensor:
        """``logp_T`` of the model with LoRA switched off. Raises ModelError when there is no LoRA."""
        if not isinstance(self.model, PeftModel):
            raise ModelError("without LoRA there is no reference policy to switch back to: train with LoRA, or KL 0")
        with self.model.disable_adapter():
            return ActorCritic.forward(self, batch).logp_T

    def plan_of(self, batch: Batch) -> RowPlan:
        """How the attention of this row is computed."""
        return plan_of(self.attention, batch, self.device)

    def hidden(self, batch: Batch, plan: RowPlan | None = None) -> Tensor:
        """Last hidden state [T, D] of every token of the row."""
        if plan is None:
            known = self._plan  # read once: another thread may set it now
            if known is None or known[0] is not batch.end_T:
                known = self._plan = (batch.end_T, self.plan_of(batch))
            plan = known[1]
        self.counters.add(batch)
        model = self.causal_model
        if model.config._attn_implementation != NAME:  # eager attention would add a mask of another shape
            raise ModelError(
                f"someone set this model's attention to {model.config._attn_implementation!r}: keep {NAME!r}"
            )
        token_T, pos_T = batch.token_T, batch.pos_T
        if plan.order_T is not None:
            token_T, pos_T = token_T[plan.order_T], pos_T[plan.order_T]
        out = model.base_model(
            input_ids=token_T[None],
            position_ids=pos_T[None],
            attention_mask=marker_mask(self.device),
            use_cache=False,
            tree_plan=plan,
        )
        hidden_TD = out.last_hidden_state.squeeze(0)
        return hidden_TD if plan.place_T is None else hidden_TD.index_select(0, plan.place_T)

    def logits(self, hidden_ND: Tensor) -> Tensor:
        """[N, V] in at least float32, as the model's own forward makes them, before the temperature."""
        config = self.causal_model.config.get_text_config(decoder=True)
        logits_NV = self.causal_model.get_output_embeddings()(hidden_ND)
        logits_NV = wide(logits_NV)
        if getattr(config, "logits_scaling", None):
            logits_NV = logits_NV / config.logits_scaling
        if getattr(config, "logit_scale", None):
            logits_NV = logits_NV * config.logit_scale
        cap = getattr(config, "final_logit_softcapping", None)
        return torch.tanh(logits_NV / cap) * cap if cap else logits_NV

    def _score(self, hidden_ND: Tensor, token_N: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability of each token and the entropy (nats, no gradient) of the distribution it came from."""

        def one(hidden_ND: Tensor, token_N: Tensor) -> tuple[Tensor, Tensor]:
            logits_NV = self.logits(hidden_ND)
            if self.temperature != 1:
                logits_NV = logits_NV / self.temperature
            return token_scores(logits_NV, token_N, compiled=self.compiled)

        if hidden_ND.shape[0] <= self.chunk:
            return one(hidden_ND, token_N)
        parts = [
            checkpoint(one, h, t, use_reentrant=False, preserve_rng_state=False)
            for h, t in zip(hidden_ND.split(self.chunk), token_N.split(self.chunk), strict=True)
        ]
        logp, entropy = zip(*parts, strict=True)
        return torch.cat(logp), torch.cat(entropy)

    def _values(self, hidden_TD: Tensor, batch: Batch) -> tuple[Tensor | None, Tensor | None]:
        """(value_S, read_SD)."""
        hidden_ND, state_N = batch.at_prompts(hidden_TD)
        if self.value_head is None or not state_N.numel():
            return None, None
        zero_SD = hidden_ND.new_zeros(batch.critic_S.numel(), hidden_ND.shape[1])
        read_SD = zero_SD.index_copy(0, state_N, hidden_ND.detach())
        if self.critic is not None and self.critic.detach_body:
            hidden_ND = hidden_ND.detach()
        return self.values_from(hidden_ND, state_N, batch.critic_S.numel()), read_SD

    def values_from(self, hidden_ND: Tensor, state_N: Tensor, states: int) -> Tensor:
        """value_S of ``states`` states: what the head reads off each of N critic prompts, 0 where there is none."""
        assert self.value_head is not None
        value_N = self.value_head(wide(hidden_ND)).squeeze(1)
        return value_N.new_zeros(states).index_copy(0, state_N, value_N)


def rows_of_logits(vocabulary: int) -> int:
    """How many rows of logits may be in memory at once."""
    return max(1, min(MOST_ROWS, MOST_LOGITS // vocabulary))


def layers_of(model: nn.Module) -> list[nn.Module]:
    """The transformer layers of a Hugging Face model."""
    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


def _checkpointed(model: PreTrainedModel) -> list[nn.Module]:
    """Switches checkpointing on; the layers that keep their inputs only. Raises ModelError where there are none."""
    layers = layers_of(model)
    if not (layers and model.supports_gradient_checkpointing):
        raise ModelError(f"{type(model).__name__} has no gradient checkpointing: leave --gradient-checkpointing out")
    model.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
    return layers
