"""Equations that several algorithms share."""
