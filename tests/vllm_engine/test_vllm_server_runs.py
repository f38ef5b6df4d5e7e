"""A run with ``--engine vllm-server`` on a real vLLM server: every update samples from the policy before it."""

import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from server_cases import KEY, VLLMServer, tiny
from server_engine_cases import training_server
from torch import Tensor
from vllm_cases import marks

from agent_envs import registry
from agents.engine.vllm_server.adapters import Adapters
from agents.text.errors import EngineError, ModelError
from runners.command_line.errors import UserError
from runners.evaluation.policies import load_policies
from runners.settings.run_settings import read_settings
from runners.training import start

pytestmark = [*marks, pytest.mark.usefixtures("own_cache")]
PRETRAIN = {"flaw": 0.5, "demonstrations": 300, "steps": 150}
RUN = (
    *("--env", "identity", "--algo", "grpo", "--grpo.group", "4", "--updates", "2", "--episodes", "32", "--lr", "1e-2"),
    *("--minibatches", "2", "--eval-every", "0", "--test-tasks", "8", "--slots", "16", "--envs.processes", "1"),
    *("--react.max-action-tokens", "16", "--react.max-tokens", "256", "--engine", "vllm-server"),
    *(word for name, value in PRETRAIN.items() for word in (f"--pretrain.{name}", str(value))),
)
FLAGS = ("--enable-lora", "--max-lora-rank", "16", "--logprobs-mode", "processed_logprobs")
MISMATCH = 5e-5


@pytest.fixture(scope="module")
def server(own_cache: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VLLMServer]:
    model = tiny(registry.make("identity"), **PRETRAIN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWISE_KEY_127_0_0_1", KEY)
        with training_server(model, tmp_path_factory.mktemp("server"), FLAGS) as running:
            yield running


def run(folder: Path, *argv: str) -> list[dict[str, float]]:
    """The rows of the updates."""
    with start.begin(read_settings([*RUN, "--out", str(folder), *argv]), Console(file=io.StringIO())) as training:
        training.run()
    assert all(KEY.encode() not in path.read_bytes() for path in folder.rglob("*") if path.is_file())
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if "mismatch_max_abs" in row]


@pytest.mark.parametrize("workers", ["0", "1"])
def test_the_server_plays_what_the_trainer_learned(server: VLLMServer, tmp_path: Path, workers: str) -> None:
    rows = run(tmp_path / "run", "--no-exact", "--vllm-server.url", server.url, "--workers", workers)
    assert len(rows) == 2
    print("\nlargest |trainer - server|", [row["mismatch_max_abs"] for row in rows])
    assert max(row["mismatch_max_abs"] for row in rows) <= MISMATCH


def test_other_programs_play_such_a_run_here(server: VLLMServer, tmp_path: Path) -> None:
    argv = ("--no-exact", "--vllm-server.url", server.url)
    run(tmp_path / "run", *argv)
    said = io.StringIO()
    policies = load_policies(str(tmp_path / "run"), read_settings([*RUN, *argv]).play(exact=True), Console(file=said))
    policies.worker.close()
    assert "engine: hf plays here; vllm-server plays in training only" in said.getvalue()


def test_an_old_policy_would_be_noticed(server: VLLMServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the first policy is played all along, and the check of each version compares it with itself."""
    load = Adapters.load
    first: list[dict[str, Tensor]] = []

    def stale(self: Adapters, state: Mapping[str, Tensor] | None, ask: Any) -> None:
        if state is not None:
            first.append({name: tensor.clone() for name, tensor in state.items()})
        load(self, state and first[0], ask)

    monkeypatch.setattr(Adapters, "load", stale)
    rows = run(tmp_path / "run", "--no-exact", "--vllm-server.url", server.url)
    assert len(first) > 1 and rows[1]["mismatch_max_abs"] > 100 * MISMATCH


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        ((), "--exact needs an engine that is capable of reproducible"),
        (("--no-exact", "--vllm-server.model", "other"), "serves no model 'other', but tiny"),
        (("--no-exact", "--lora.rank", "32"), "cannot load an adapter"),
        (("--no-exact", "--react.max-tokens", "4000"), "takes sessions of 512 tokens, not of 4000"),
        (("--no-exact", "--vllm-server.url", "http://127.0.0.1:9/v1"), "does not answer"),
    ],
)
def test_what_cannot_be_run_ends_in_one_line(
    server: VLLMServer, argv: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    with pytest.raises((EngineError, ModelError, UserError)) as caught:
        run(tmp_path / "run", "--vllm-server.url", server.url, *argv)
    assert why in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
