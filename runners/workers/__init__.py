"""Rollout workers: in this process (`local`), in others (`process`) or on Ray (`ray`), by one protocol (`base`)."""
