"""Episodes that fork while they are played."""
