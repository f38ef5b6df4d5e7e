"""A corridor of doors: many small decisions, one reward at the end."""
