"""A training run: what it plays, learns, records and can go on from."""
