"""What leaves a run: an adapter or a whole model that other programs load, a value head, and a model card."""
