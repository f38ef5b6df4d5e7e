"""Base models, and the actor-critic of a run on top of one."""
