"""Rollouts: many episodes at once on one engine."""
