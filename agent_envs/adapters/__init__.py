"""Environments that others wrote, played under this package's contract."""
