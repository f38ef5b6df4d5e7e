"""Builds one page out of a run folder: reading and choosing, merging episodes into trees, and the page itself."""
