"""The small transformer behind ``--model tiny``: an ordinary Qwen2 from transformers, random at first."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM


@dataclass(frozen=True)
class TinySettings:
    """Shape of the tiny model."""

    layers: int = 2
    """Transformer layers."""
    width: int = 128
    """Size of the hidden state."""
    heads: int = 4
    """Attention heads; each is width / heads wide."""
    mlp: int = 384
    """Size of the hidden layer of the feed-forward blocks."""
    context: int = 4096
    """Longest sequence in tokens."""

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"tiny: width {self.width} must be a multiple of heads {self.heads}")


def build_model(tokenizer: PreTrainedTokenizerFast, settings: TinySettings, seed: int) -> PreTrainedModel:
    """A Qwen2 with random weights; the same seed gives the same weights, and no global random state is touched."""
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=settings.width,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.heads,
        intermediate_size=settings.mlp,
        max_position_embeddings=settings.context,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(config)
        # Large embeddings let attention tell words apart from the first step on; copying is learned much sooner.
        torch.nn.init.normal_(model.model.embed_tokens.weight, std=1.0)
    return model
