"""From a run's settings to the model that it trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agents.model.actor_critic import ActorCritic
from agents.model.separate_critic import SeparateActorCritic
from agents.model.value_head import CriticSettings, SeparateCriticSettings
from runners.models import Base
from runners.settings import Train


def actor_of(base: Base, train: Train, parts: Mapping[str, Any]) -> tuple[ActorCritic, tuple[int, ...] | None]:
    """What a run with these settings begins with: its model on top of ``base``, and its critic prompt as tokens;
    None where it has no value head to be read there."""
    critic: CriticSettings | SeparateCriticSettings | None = parts.get("critic")
    made_from: Any = {"temperature": train.temperature, "seed": train.seed}
    if isinstance(critic, SeparateCriticSettings):
        return SeparateActorCritic(base.model, parts["lora"], critic, **made_from), None
    prompt = base.chat.critic_prompt(critic.prompt) if critic else None
    return ActorCritic(base.model, parts["lora"], critic, **made_from), prompt
