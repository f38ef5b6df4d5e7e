"""τ²-bench's telecom domain in solo mode: `env`."""
