"""The embedded default: a small transformer of a standard architecture and its tokenizer, both made from scratch."""
