"""What a run takes, before it begins."""
