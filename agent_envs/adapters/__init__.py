"""Environments that others wrote, played as text."""
