"""BabyAI: errands in rooms that are partly seen (extra `babyai`)."""
