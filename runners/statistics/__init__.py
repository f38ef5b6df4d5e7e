"""Estimates with intervals, and how well numbers tell good from bad."""
