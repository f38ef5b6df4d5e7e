"""Multi-hop questions over small wikis, answered by navigating, searching, following links and saving lines."""
