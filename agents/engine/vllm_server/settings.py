"""Settings of the engine on a vLLM server. Imports no HTTP library: the command line shows them."""

from dataclasses import dataclass

from agent_envs.ranges import check_ranges
from agents.endpoint.address import check_address


@dataclass(frozen=True)
class VLLMServerSettings:
    """The engine on a vLLM server."""

    url: str = "http://127.0.0.1:8000/v1"
    """Address of the server's OpenAI-compatible API."""
    model: str = ""
    """Name under which the server serves the base model. Empty: the first that it lists."""
    top_logprobs: int = 20
    """Most probable tokens from which an entropy is computed; a server gives 20 unless it has --max-logprobs."""
    patience: float = 300.0
    """Seconds that one answer may take; then the run ends."""
    shared_dir: str = ""
    """Folder for adapter files, which the server must see under the same path. Empty: the one for temporary files."""

    def __post_init__(self) -> None:
        check_address(self.url, "url")
        check_ranges(self, top_logprobs=(1, 1000), patience=1)
