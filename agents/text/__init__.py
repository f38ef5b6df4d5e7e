"""Text to tokens and back: chat templates, where thoughts end, and the errors a user sees."""
