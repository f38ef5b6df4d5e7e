"""Evaluations of models behind an OpenAI-compatible endpoint."""
