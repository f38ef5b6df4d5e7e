"""Whole runs with ``--engine vllm``: they learn what the default engine's do, and with a stale adapter they do not."""

import io
import json
import os
from pathlib import Path

import pytest
from rich.console import Console
from vllm_cases import marks

from agent_envs.identity.env import IdentityEnv
from agents.engine.registry import EngineChoice
from agents.engine.vllm.settings import VLLMSettings
from agents.text.errors import EngineError, ModelError
from runners.command_line.errors import UserError
from runners.evaluation.measure import evaluate_tasks
from runners.evaluation.policies import load_policies
from runners.evaluation.tasks import pick_tasks
from runners.settings.run_settings import read_settings
from runners.training import start
from runners.workers.controller import Controller
from runners.workers.local import LocalWorkers
from runners.workers.process import ProcessWorkers
from runners.workers.registry import Processes, WorkersOpening

pytestmark = [*marks, pytest.mark.usefixtures("own_cache")]
PRETRAIN = ("--pretrain.flaw", "0.5", "--pretrain.demonstrations", "300", "--pretrain.steps", "400")
LEARNS = (
    *("--env", "identity", "--algo", "grpo", "--grpo.group", "8", "--updates", "20", "--episodes", "96"),
    *("--minibatches", "6", "--eval-every", "0", "--test-tasks", "43", "--slots", "96", "--envs.processes", "1"),
    *("--react.max-action-tokens", "16", "--react.max-tokens", "256"),
)
VLLM = ("--engine", "vllm", "--workers", "1")
SEEDS = range(int(os.environ.get("TURNWISE_VLLM_SEEDS", "1")))
"""Three take about ten minutes."""


def trained(folder: Path, *argv: str) -> float:
    """What the policy of a run has learned in the end: sampled success on all test tasks, on the default engine."""
    run, quiet = read_settings([*LEARNS, "--out", str(folder), *argv]), Console(file=io.StringIO())
    with start.begin(run, quiet) as training:
        training.run()
    policies = load_policies(str(folder), run.play(), quiet)
    controller = Controller(LocalWorkers(lambda: policies.worker), run.train.slots, run.faults)
    controller.load(0, policies.adapters["trained"])
    tasks = pick_tasks(IdentityEnv(), "test", 43)
    try:
        return evaluate_tasks(controller, run.train.sampling(), tasks, quiet, seed=9, samples=8).success().mean
    finally:
        controller.close()


@pytest.fixture(scope="module", params=SEEDS)
def seed(request: pytest.FixtureRequest) -> tuple[str, str]:
    return "--seed", str(request.param)


@pytest.fixture(scope="module")
def default(tmp_path_factory: pytest.TempPathFactory, own_cache: None, seed: tuple[str, str]) -> tuple[Path, float]:
    """A run of the default engine, and what it reached."""
    folder = tmp_path_factory.mktemp("default") / "run"
    return folder, trained(folder, *PRETRAIN, *seed)


def test_it_learns_what_the_default_engine_learns(
    default: tuple[Path, float], seed: tuple[str, str], tmp_path: Path
) -> None:
    reached = trained(tmp_path / "run", *PRETRAIN, *seed, *VLLM)
    print(f"\nfinal success, seed {seed[1]}: default {default[1]:.3f}, vllm {reached:.3f}")
    assert default[1] > 0.4, "there must be something to learn"
    assert abs(reached - default[1]) <= 0.05


class Stale(ProcessWorkers):
    """Workers that keep the first policy, under whatever version they are asked for."""

    first: tuple[bytes, str] | None = None

    def load(self, version: int, adapter: bytes, sha256: str) -> None:
        self.first = self.first or (adapter, sha256)
        super().load(version, *self.first)


def test_a_stale_adapter_learns_less(
    default: tuple[Path, float], seed: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the first policy plays all along, and the trainer learns from what it did."""

    def stale(opening: WorkersOpening) -> Stale:
        return Stale(opening.setup, opening.count)

    monkeypatch.setattr(Processes, "open", staticmethod(stale))
    reached = trained(tmp_path / "run", *PRETRAIN, *seed, *VLLM)
    print(f"\nfinal success, seed {seed[1]}: default {default[1]:.3f}, vllm with a stale adapter {reached:.3f}")
    assert reached < default[1] - 0.05


def test_a_run_goes_on_from_another_with_its_adapter_merged(default: tuple[Path, float], tmp_path: Path) -> None:
    """The weights are no longer those of the base model's folder; vLLM checks its own against the model's."""
    tokens = []
    for place, engine in (("hf", ()), ("vllm", VLLM)):
        once = ("--init-from", str(default[0]), "--updates", "1")
        trained(tmp_path / place, *once, *engine)
        lines = (tmp_path / place / "episodes.jsonl").read_text().splitlines()
        tokens.append([[turn["tokens"] for turn in json.loads(line)["turns"]] for line in lines])
    assert tokens[0] == tokens[1] and len(tokens[0]) == 96


def test_other_programs_play_such_a_run_here(default: tuple[Path, float]) -> None:
    run = read_settings([*LEARNS, *PRETRAIN, *VLLM])
    said = io.StringIO()
    policies = load_policies(str(default[0]), run.play(), Console(file=said))
    policies.worker.close()
    assert "engine: hf plays here; vllm runs in rollout workers only" in said.getvalue()
    assert "vLLM" not in policies.worker.engine.describe()


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (("--engine", "vllm"), "needs a process of its own: set --workers 1 or more"),
        ((*VLLM, "--vllm.sampler", "native"), "--exact needs an engine that is capable of reproducible"),
        ((*VLLM, "--vllm.cache-mib", "1", "--react.max-tokens", "4000"), "vLLM does not start"),
    ],
)
def test_what_cannot_be_run_ends_in_one_line(argv: tuple[str, ...], why: str, tmp_path: Path) -> None:
    with pytest.raises((EngineError, ModelError, UserError)) as caught:
        trained(tmp_path / "run", *PRETRAIN, *argv)
    assert why in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_settings_are_checked_without_vllm() -> None:
    assert EngineChoice("vllm").own_process and not EngineChoice().own_process
    for wrong in ({"cache_mib": -1}, {"gpu_share": 1.5}, {"patience": 0}, {"prefill_tokens": 1}, {"top_logprobs": -1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            VLLMSettings(**wrong)
