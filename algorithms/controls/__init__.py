"""Controls for experiments: an exact critic, and an actor-critic without the packed pass."""
