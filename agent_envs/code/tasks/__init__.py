"""Coding tasks: generated from a library of our own, or read from files in the manner of known sets."""
