"""What ``turnwise new-env`` writes."""
