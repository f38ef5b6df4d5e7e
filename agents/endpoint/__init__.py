"""Language models behind an OpenAI-compatible endpoint: the line to one, and its key."""
