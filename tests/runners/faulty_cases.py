"""An environment that breaks in five ways, and a model that can play it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from run_cases import training

from agent_envs import registry

# The clone of a demonstrator that is wrong in half of the turns; the faulty environment speaks like the sound one.
BASE = """
env: identity
test_tasks: 0
eval_every: 0
react: {max_action_tokens: 16, max_tokens: 256}
pretrain:
  {flaw: 0.5, demonstrations: 300, steps: 400, shape: {width: 64, mlp: 128}}
"""
FAULTY = """
env: faulty
updates: 48
episodes: 96
minibatches: 6
lr: 3e-3
eval_every: 0
test_tasks: 0
react: {max_action_tokens: 16, max_tokens: 256}
envs: {step_seconds: 3.0, memory_mb: 1024}
"""


@contextmanager
def faulty_model(folder: Path) -> Iterator[str]:
    """Folder of the cloned model, while the faulty environment is registered."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry.ENVS, "faulty", "faulty_env:FaultyEnv")
        with training(folder / "run", text=BASE) as run:
            source = run.source
        yield source
