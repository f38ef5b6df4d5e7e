"""Behaviour cloning: the tiny model, made from an environment's flawed demonstrator."""
