"""C of our own, compiled on the user's machine: how it is built, and one file for each source with what calls it."""
