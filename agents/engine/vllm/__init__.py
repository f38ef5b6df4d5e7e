"""The engine on vLLM, in a worker's process. Its package is imported only when such an engine is opened."""
