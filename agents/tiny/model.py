"""The small transformer of ``--model tiny``: a Qwen3 of transformers whose initial weights can look back.

Reading a page means: find the place where a word stood before and say what came after it (an induction head). A random
two-layer model spends most of a short training on finding that circuit. So the weights start close to it, in the spirit
of mimetic initialisation (Trockman and Kolter, 2023): the first layer sees three tokens only and writes what stood just
before, turned by a rotation R; the second layer's keys undo R, so that its queries start out matching them by likeness;
and what its heads find, they copy. Everything is trained from there on.
"""

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from agents.tiny.settings import TinySettings


def build_model(tokenizer: PreTrainedTokenizerFast, settings: TinySettings, seed: int) -> PreTrainedModel:
    """The untrained model; the same seed gives the same weights, and no global random state is touched."""
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=settings.width,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.heads,
        head_dim=settings.width // settings.heads,
        intermediate_size=settings.mlp,
        max_position_embeddings=settings.context,
        layer_types=["sliding_attention"] + ["full_attention"] * (settings.layers - 1),
        use_sliding_window=True,
        sliding_window=settings.window,
        # Slow rotations: likeness must still count between a question and a page a hundred tokens later.
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
        torch.nn.init.normal_(model.model.embed_tokens.weight, std=0.1)
        _start_looking_back(model)
    return model


@torch.no_grad()
def _start_looking_back(model: Qwen3ForCausalLM) -> None:
    """Sets the attention of the first two layers as the module's docstring says."""
    first, second = (layer.self_attn for layer in model.model.layers[:2])
    width = model.config.hidden_size
    into, out = _rotation(width), _rotation(width)
    _set(first.v_proj.weight, into, 0.15**0.5)
    _set(first.o_proj.weight, out.T, 0.15**0.5)
    rotated = out.T @ into  # what stood before arrives in the residual stream as rotated @ embedding
    match, copy = _rotation(width), _rotation(width)
    _set(second.q_proj.weight, match)
    _set(second.k_proj.weight, match @ rotated.T)
    second.q_norm.weight.fill_(1.5)
    _set(second.v_proj.weight, copy, 0.1**0.5)
    _set(second.o_proj.weight, copy.T, 0.1**0.5)


def _set(weight: Tensor, value: Tensor, scale: float = 1.0) -> None:
    weight.copy_(scale * value)


def _rotation(n: int) -> Tensor:
    return torch.linalg.qr(torch.randn(n, n))[0]
