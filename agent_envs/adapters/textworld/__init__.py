"""TextWorld: games that are generated from a seed (extra `textworld`)."""
