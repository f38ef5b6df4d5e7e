"""The recipes of CONTRIBUTING.md and docs/add-an-env.md work as they are written."""

import importlib
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor

from agent_envs import registry
from agent_envs.contract.check import check_text_env
from agent_envs.identity.env import IdentityEnv
from agents.text.settings import CRITIC_TEXT
from agents.tiny.model import TinySettings, build_model
from agents.tiny.tokenizer import build_tokenizer
from agents.tree import Batch, Forward, Kind, Node
from agents.tree.packing import pack
from algorithms import REGISTRY, Algorithm, Loss
from algorithms.base import floats
from runners.run_folder.folder import fresh_folder
from runners.settings.run_settings import read_settings
from runners.training.run import Training

RECIPES = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text("utf-8")


class EchoEnv(IdentityEnv):
    name = "echo"


def reinforce() -> type[Algorithm[Tensor]]:
    (code,) = (c for c in re.findall(r"```python\n(.*?)```", RECIPES, re.DOTALL) if "Algorithm" in c)
    names = {
        "dataclass": dataclass, "Algorithm": Algorithm, "Tensor": Tensor, "Batch": Batch, "Forward": Forward,
        "Loss": Loss, "floats": floats, "__name__": __name__,
    }  # fmt: skip
    exec(re.sub(r"^   ", "", code, flags=re.MULTILINE), names)
    return names["Reinforce"]  # type: ignore[return-value]


Reinforce = reinforce()


def test_the_algorithm_is_what_it_says() -> None:
    root = Node(Kind.STATE, (1,))
    for reward, count in ((1.0, 3), (0.0, 1)):
        action = root.add(Node(Kind.ACTION, (2, 3), logp=(-1.0, -1.0), reward=reward, count=count))
        action.add(Node(Kind.STATE, (), terminated=True))
    batch = pack([root])
    new = Forward(batch.old_logp_T, torch.zeros(len(batch)))
    algorithm = Reinforce()
    # Three episodes with advantage 0.25 and one with -0.75, each with log-probability -2.
    assert algorithm.credit(batch, new).tolist() == pytest.approx([3 * 0.25, -0.75])
    batch.old_logp_T[1:3] = -0.5
    new = Forward(batch.old_logp_T, torch.zeros(len(batch)))
    loss = algorithm.loss(batch, new, algorithm.credit(batch, new)).total
    assert float(loss) == pytest.approx(-(3 * 0.25 * -1.0 + -0.75 * -2.0) / 4)


@pytest.mark.runs
def test_one_line_each_and_the_program_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_text_env(EchoEnv, tasks=1)
    monkeypatch.setitem(registry.ENVS, "echo", f"{__name__}:EchoEnv")
    monkeypatch.setitem(cast(dict[str, str], REGISTRY.builtin), "reinforce", f"{__name__}:Reinforce")
    words = EchoEnv().config.words
    tokenizer = build_tokenizer([f"word: {w} SAY({w})" for w in words], [*words, CRITIC_TEXT])
    build_model(tokenizer, TinySettings(width=32, mlp=48), seed=0).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    argv = ["--env", "echo", "--algo", "reinforce", "--model", str(tmp_path / "model"), "--updates", "2"]
    argv += ["--episodes", "8", "--minibatches", "2", "--test-tasks", "0", "--eval-every", "0"]
    settings = read_settings([*argv, "--react.max-action-tokens", "4"])
    with fresh_folder(tmp_path / "run") as out, Training(settings, out, Console(file=io.StringIO())) as run:
        run.run()
    assert (out / "summary.json").is_file()
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 2


def test_the_environment_keeps_the_contract_and_its_flaw_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parent.parent / "docs" / "add-an-env.md").read_text("utf-8")
    (code,) = (c for c in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "class LiftEnv" in c)
    assert len(code.splitlines()) <= 52 and sum(bool(line.strip()) for line in code.splitlines()) <= 40
    (tmp_path / "contributed_lift.py").write_text(code, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    lift = importlib.import_module("contributed_lift").LiftEnv
    check_text_env(lift)
    env, rng = lift(), np.random.default_rng(0)
    env.reset(seed=0, options={"task": env.tasks("train")[1]})
    over = False
    while not over:
        _, _, terminated, truncated, info = env.step(env.expert(flaw=1.0, rng=rng))
        over = terminated or truncated
    assert info["success"] is False, "there is something to learn"
