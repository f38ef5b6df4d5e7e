"""Suites of fixed tasks, and one row for an agent that plays them."""
