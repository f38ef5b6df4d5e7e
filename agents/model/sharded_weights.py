"""The frozen weights of a model's layers, cut over ranks with FSDP2: each holds a part, and gathers a layer when it is
passed.

Invariant: the numbers are those of whole weights. What is trained, a hundredth of the model, stays whole on every rank,
with its gradient and the optimiser's state: so checkpoints do not know how many ranks there were.
"""

from torch import nn
from torch.distributed.fsdp import fully_shard

from agents.model.actor_critic import ActorCritic, layers_of
from agents.model.separate_critic import SeparateActorCritic
from agents.text.errors import ModelError


def shard(actor: ActorCritic) -> None:
    """Cuts the frozen weights over the ranks of torch's process group. Embeddings and the output layer stay whole.

    From then on every rank must make the same passes. Raises ModelError for a model without layers to cut.
    """
    models: list[nn.Module] = [actor.causal_model]
    if isinstance(actor, SeparateActorCritic):
        models.append(actor.critic_body.causal_model)
    for model in models:
        layers = layers_of(model)
        if not layers:
            raise ModelError(f"{type(model).__name__} has no layers that can be cut: take --learner ddp:N")
        for layer in layers:
            fully_shard(layer, ignored_params={p for p in layer.parameters() if p.requires_grad})
