"""Mathematics in thoughts: a short thought ended by a blank line is a turn."""
