"""The model that a run trains, from the run's settings."""

from agents.model.actor_critic import ActorCritic
from agents.model.separate_critic import SeparateActorCritic
from agents.model.settings import SeparateCriticSettings
from runners.loading.base_model import Base
from runners.settings.run_settings import RunSettings


def actor_of(base: Base, settings: RunSettings) -> tuple[ActorCritic, tuple[int, ...] | None]:
    """A run's model before its first update, on top of ``base``; and the tokens of its critic prompt, None where no
    value head reads one."""
    train, lora, critic = settings.train, settings.lora, settings.critic
    if isinstance(critic, SeparateCriticSettings):
        return SeparateActorCritic(base.model, lora, critic, temperature=train.temperature, seed=train.seed), None
    prompt = base.chat.critic_prompt(critic.prompt) if critic else None
    return ActorCritic(base.model, lora, critic, temperature=train.temperature, seed=train.seed), prompt
