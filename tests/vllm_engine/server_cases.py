"""vLLM's own OpenAI-compatible server in a process of its own, and the same model played in this one."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from rich.console import Console

from agent_envs import registry
from agent_envs.core import Task, TextEnv
from agent_envs.isolation.host_process import HostSettings
from agents.engine import SamplingSettings
from agents.rollout.settings import FaultSettings, ReActSettings
from runners.cloning.settings import PretrainSettings
from runners.cloning.tiny_model import ensure_tiny
from runners.evaluation.measure import PlayedTasks, evaluate_tasks
from runners.evaluation.policies import load_policies
from runners.settings.play_settings import PlaySettings

KEY = "sk-of-the-tests"
START = 400.0
"""Seconds that a server may take to start on a busy machine."""


@dataclass
class VLLMServer:
    """A server that can be ended and started again at the same address."""

    model: Path
    folder: Path
    template: str | None = None
    flags: Sequence[str] = ()
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        # With config.json beside it, transformers would replace the tokenizer by that of the architecture.
        self.tokenizer = self.folder / "tokenizer"
        self.tokenizer.mkdir()
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            shutil.copy(self.model / name, self.tokenizer)
        if self.template is not None:
            (self.tokenizer / "chat_template.jinja").write_text(self.template)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def start(self) -> None:
        own = {"VLLM_NO_USAGE_STATS": "1", "TORCHDYNAMO_DISABLE": "1", "VLLM_LOGGING_LEVEL": "WARNING"}
        command = [
            sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(self.model),
            "--tokenizer", str(self.tokenizer), "--served-model-name", "tiny", "--host", "127.0.0.1",
            "--port", str(self.port), "--api-key", KEY, "--model-impl", "transformers", "--dtype", "float32",
            "--block-size", "32", "--max-model-len", "512", "--max-num-seqs", "16", "--enforce-eager",
            "--kv-cache-memory-bytes", str(64 << 20), "--generation-config", "vllm",
            "--no-enable-chunked-prefill", "--max-num-batched-tokens", "512", *self.flags,
        ]  # fmt: skip
        log = self.folder / "server.log"
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                command, env=os.environ | own, stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True
            )
        until = time.monotonic() + START
        while True:
            with suppress(httpx2.HTTPError):
                if httpx2.get(self.url.replace("/v1", "/health"), timeout=2).status_code == 200:
                    return
            assert self.process.poll() is None and time.monotonic() < until, log.read_text()[-3000:]
            time.sleep(0.5)

    def kill(self) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


@contextmanager
def serving(model: Path, folder: Path, template: str | None = None, *flags: str) -> Iterator[VLLMServer]:
    server = VLLMServer(model, folder, template, flags)
    try:
        server.start()
        yield server
    finally:
        server.kill()


def tiny(env: TextEnv, **pretrain: Any) -> Path:
    return ensure_tiny([env], PretrainSettings(**pretrain), Console(quiet=True))


def in_process(
    name: str, model: Path, react: ReActSettings, tasks: Sequence[Task], samples: int, config: Any = None
) -> dict[str, PlayedTasks]:
    """{"sampled": …, "greedy": …} of the same model with the default engine."""
    config = config or registry.env_class(name).Config()
    play = PlaySettings({name: config}, react, HostSettings(processes=1), FaultSettings(), 32, exact=True)
    console = Console(quiet=True)
    with load_policies(str(model), play, console, device="cpu").playing() as controller:
        controller.load(0, None)
        each: Callable[..., PlayedTasks] = lambda sampling, n: evaluate_tasks(  # noqa: E731
            controller, sampling, tasks, console, seed=0, samples=n
        )
        return {"sampled": each(SamplingSettings(), samples), "greedy": each(SamplingSettings(greedy=True), 1)}
