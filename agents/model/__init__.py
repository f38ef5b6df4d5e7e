"""The actor-critic: a causal language model with LoRA and a value head that reads token trees."""
