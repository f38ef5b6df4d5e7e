"""Questions that need the wiki for a fact and Python for a computation on it."""
