"""Runs whose critic shares nothing with the policy: what an update costs, records, and does not let through."""

import io
import json
from pathlib import Path

import pytest
import torch
from rich.console import Console
from run_cases import played, training
from torch import Tensor

from agents.compiled.threads import allowing
from agents.model.separate_critic import FILE, SeparateActorCritic
from runners.evaluation.policies import load_policies
from runners.run_folder.runs import read_run

pytestmark = [pytest.mark.usefixtures("own_cache"), pytest.mark.runs]


def policy_after_an_update(folder: Path, *argv: str, together: bool = False) -> dict[str, Tensor]:
    with training(folder, "--algo", "ppo", *argv) as run:
        if together:
            run.learner.clipped = [[p for group in run.learner.clipped for p in group]]
        run.learner.learn(1, played(run))
        return run.model.policy_state()


@pytest.mark.parametrize("together", [False, True])
def test_the_critics_gradient_does_not_shorten_the_policys_step(tmp_path: Path, together: bool) -> None:
    """Its loss a thousand times as heavy; clipped together, as the control is, the policy would hardly move."""
    small, large = (
        policy_after_an_update(
            tmp_path / weight, "--ppo.value-coef", weight, "--max-grad-norm", "1e-9", together=together
        )
        for weight in ("0.5", "500")
    )
    assert all(torch.equal(x, large[name]) for name, x in small.items()) is not together


@pytest.mark.parametrize(("algo", "critics"), [("ppo", 2), ("selfac", 0), ("grpo", 0)])
def test_a_second_pass_for_every_minibatch(tmp_path: Path, algo: str, critics: int) -> None:
    with training(tmp_path / "run", "--algo", algo, "--minibatches", "1", "--updates", "2") as run:
        trees = played(run)
        with allowing(1):  # of several threads, each would count the pass over its own rows
            for update in (2, 3):  # the first measures the divergence from the start as well
                run.learner.learn(update, trees)
        assert run.model.counters.passes == 2
        own = isinstance(run.model, SeparateActorCritic)
        assert (run.model.critic_body.counters.passes if own else 0) == critics


def test_every_state_has_a_value_in_the_records_and_the_agent_needs_no_critic(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with training(folder, "--algo", "ppo", "--updates", "2", "--value-lr", "1e-2") as run:
        run.run()
        policy = run.model.policy_state()
    second = [e for e in map(json.loads, (folder / "episodes.jsonl").read_text().splitlines()) if e["update"] == 2]
    values = [turn["value"] for episode in second for turn in episode["turns"]]
    advantages = [turn["advantage"] for episode in second for turn in episode["turns"]]
    assert None not in values and len(set(values)) > 5
    assert None not in advantages and max(advantages) > 0 > min(advantages)
    (folder / "checkpoints" / "update-2" / FILE).unlink()
    manifest = folder / "checkpoints" / "update-2" / "MANIFEST.json"
    sums = json.loads(manifest.read_text())
    assert sums.pop(FILE)
    manifest.write_text(json.dumps(sums))
    read = read_run(folder)
    found = load_policies(str(folder), read.settings.play(), Console(file=io.StringIO()))
    trained = found.adapters["trained"]
    assert trained is not None and all(torch.equal(x, trained[name]) for name, x in policy.items())
    found.worker.close()
