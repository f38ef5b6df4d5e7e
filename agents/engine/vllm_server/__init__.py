"""The engine on a vLLM server that the user started: token ids go out and come back over HTTP."""
